//! ListObjectsV2.

use std::{collections::BTreeMap, fmt::Write as _, ops::Bound};

use super::{
    Stored,
    http::{Answer, Request},
};

/// Keys and, with a delimiter, common prefixes, in the order of their bytes; the token is the last of the page.
pub(super) fn page(request: &Request, objects: &BTreeMap<String, Stored>, page_size: usize) -> Answer {
    let prefix = request.parameter("prefix").unwrap_or_default();
    let delimiter = request.parameter("delimiter").unwrap_or_default();
    let most = request.parameter("max-keys").and_then(|n| n.parse().ok()).unwrap_or(1000).min(page_size);
    let after = request.parameter("continuation-token").or(request.parameter("start-after")).unwrap_or_default();
    let from = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };

    let (mut contents, mut commons) = (String::new(), String::new());
    let (mut count, mut last, mut more) = (0, String::new(), false);
    let mut common: Option<String> = None;
    for (key, stored) in objects.range::<str, _>((from, Bound::Unbounded)) {
        let Some(rest) = key.strip_prefix(prefix) else { break };
        if common.as_deref().is_some_and(|common| key.starts_with(common)) {
            // Of a common prefix that is out already; the token passes over it.
            last.clone_from(key);
            continue;
        }
        // The page before ended with this common prefix.
        if !delimiter.is_empty() && after.ends_with(delimiter) && after.len() > prefix.len() && key.starts_with(after) {
            continue;
        }
        if count == most {
            more = true;
            break;
        }
        count += 1;
        last.clone_from(key);
        match (!delimiter.is_empty()).then(|| rest.find(delimiter)).flatten() {
            Some(at) => {
                let name = &key[..prefix.len() + at + delimiter.len()];
                let _ = write!(commons, "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", escape(name));
                common = Some(name.to_owned());
            }
            None => {
                let _ = write!(
                    contents,
                    "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{}</ETag>\
                     <Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                    escape(key),
                    escape(&stored.etag),
                    stored.body.len()
                );
            }
        }
    }
    let token = match more {
        true => format!("<NextContinuationToken>{}</NextContinuationToken>", escape(&last)),
        false => String::new(),
    };
    let xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
         <Name>{}</Name><Prefix>{}</Prefix><KeyCount>{count}</KeyCount><MaxKeys>{most}</MaxKeys>\
         <IsTruncated>{more}</IsTruncated>{token}{contents}{commons}</ListBucketResult>",
        request.bucket,
        escape(prefix),
    );
    Answer::new(200, xml).with("content-type", "application/xml")
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\r' | '\n' | '\t' => _ = write!(escaped, "&#{};", c as u32),
            c => escaped.push(c),
        }
    }
    escaped
}
