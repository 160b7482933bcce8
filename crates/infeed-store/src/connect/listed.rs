//! Checks the answer to a listing before `object_store` reads it: `object_store` accepts any XML as an empty listing,
//! and removes slashes from keys.

use std::borrow::Cow;

use infeed_core::error::{Error, ErrorKind, Result};

/// The most bytes of an unexpected answer that are shown.
const TOLD: usize = 40;

/// Whether a request is a listing: of S3 and Google, or of Azure.
pub(super) fn asks(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "list-type=2" | "comp=list"))
}

/// The listing without keys that can't be read by their names, if it has any; a warning counts them.
///
/// # Errors
/// `Io` for an answer that is not a listing, and for a listing that breaks off.
pub(super) fn check(body: &[u8]) -> Result<Option<Vec<u8>>> {
    let text = text_of(body);
    let head = String::from_utf8_lossy(&body[..body.len().min(1024)]);
    if head.contains("<EnumerationResults") {
        // Azure's listing, whose names follow other rules.
        return Ok(None);
    }
    if !head.contains("ListBucketResult") {
        let begin: String = text.trim_start().chars().take(TOLD).collect();
        let what = match begin.is_empty() {
            true => "the answer to a listing is empty".to_owned(),
            false => format!("the answer is not a listing: it begins with {begin:?}"),
        };
        return Err(Error::new(ErrorKind::Io, what)
            .with_hint("check the endpoint, and whether there is a proxy or a log-in page in between"));
    }
    let token = elements(&text, "NextContinuationToken").any(|token| !token.is_empty());
    if elements(&text, "IsTruncated").any(|truncated| truncated == "true") && !token {
        let what = "the listing breaks off: the store reports more entries, but gives no token to request them";
        return Err(Error::new(ErrorKind::Io, what).with_hint("list again; if that fails, the store is broken"));
    }
    let folders = elements(&text, "CommonPrefixes").flat_map(|common| elements(common, "Prefix"));
    let mut unreadable = elements(&text, "Key").chain(folders).map(unescaped).filter(|key| wrong(key).is_some());
    let Some(first) = unreadable.next() else { return Ok(None) };
    let (count, why) = (1 + unreadable.count(), wrong(&first).unwrap_or_default());
    // One bad name written by another tool must not make a whole bucket unreadable.
    tracing::warn!(
        count,
        "keys of the listing are left out, because they cannot be read by name: the first is {first:?}, which {why}"
    );
    let plain = without(&text, "Contents", "Key");
    Ok(Some(without(&plain, "CommonPrefixes", "Prefix").into_bytes()))
}

/// The text of a page. Almost all are UTF-8, which is checked faster than converted.
fn text_of(body: &[u8]) -> Cow<'_, str> {
    str::from_utf8(body).map_or_else(|_| String::from_utf8_lossy(body), Cow::Borrowed)
}

/// The XML without the elements called `name` that contain such a key.
fn without(xml: &str, name: &str, key: &str) -> String {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let (mut kept, mut rest) = (String::with_capacity(xml.len()), xml);
    while let Some((before, after)) = rest.split_once(&open) {
        let Some((inside, after)) = after.split_once(&close) else { break };
        kept.push_str(before);
        if elements(inside, key).all(|key| wrong(&unescaped(key)).is_none()) {
            [&*open, inside, &*close].into_iter().for_each(|part| kept.push_str(part));
        }
        rest = after;
    }
    kept.push_str(rest);
    kept
}

/// Whether a page of S3, Google or Azure contains neither objects nor folders.
pub(super) fn is_empty(body: &[u8]) -> bool {
    let text = text_of(body);
    let has = |name: &str| elements(&text, name).next().is_some();
    !["Contents", "CommonPrefixes", "Blob", "BlobPrefix"].into_iter().any(has)
}

/// What is wrong with a name that `object_store` refuses, or silently changes to another. A slash at the end is
/// allowed: it marks a folder.
fn wrong(key: &str) -> Option<&'static str> {
    let parts = || key.strip_suffix('/').unwrap_or(key).split('/');
    if key.starts_with('/') {
        Some("begins with `/`")
    } else if let Some(dots) = parts().find(|part| matches!(*part, "." | "..")) {
        Some(if dots == "." { "has a part `.`" } else { "has a part `..`" })
    } else if parts().any(str::is_empty) {
        Some("has an empty part")
    } else {
        key.contains(|c: char| c.is_ascii_control()).then_some("has control characters")
    }
}

/// The texts of the elements with this name, which have no attributes.
fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&open)?;
        let (text, after) = after.split_once(&close)?;
        rest = after;
        Some(text)
    })
}

fn unescaped(text: &str) -> Cow<'_, str> {
    let Some((before, mut rest)) = text.split_once('&') else { return Cow::Borrowed(text) };
    let mut plain = before.to_owned();
    loop {
        let (entity, after) = rest.split_once(';').unwrap_or((rest, ""));
        let number = |digits: &str| match digits.strip_prefix('x') {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        };
        match entity {
            "lt" => plain.push('<'),
            "gt" => plain.push('>'),
            "quot" => plain.push('"'),
            "apos" => plain.push('\''),
            "amp" => plain.push('&'),
            _ => plain.extend(entity.strip_prefix('#').and_then(number).and_then(char::from_u32)),
        }
        match after.split_once('&') {
            Some((text, more)) => {
                plain.push_str(text);
                rest = more;
            }
            None => {
                plain.push_str(after);
                return Cow::Owned(plain);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(inside: &str) -> String {
        format!("<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://x\">{inside}</ListBucketResult>")
    }

    #[test]
    fn what_is_no_listing_says_so() {
        for (body, says) in [
            (String::new(), "is empty"),
            ("<!DOCTYPE html><html><body>Please log in</body></html>".into(), "begins with \"<!DOCTYPE html>"),
            ("{\"error\":1}".into(), "begins with \"{\\\"error"),
            (listing("<IsTruncated>true</IsTruncated><Contents><Key>a</Key></Contents>"), "breaks off"),
            (listing("<IsTruncated>true</IsTruncated><NextContinuationToken></NextContinuationToken>"), "breaks off"),
        ] {
            let error = check(body.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().contains(says), "{error}");
        }
        let more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>";
        for good in ["", more, "<IsTruncated>false</IsTruncated>", "<Contents><Key>a/b.jpg</Key></Contents>"] {
            check(listing(good).as_bytes()).unwrap();
        }
        check(b"<?xml version=\"1.0\"?><EnumerationResults><Blobs/></EnumerationResults>").unwrap();
    }

    #[test]
    fn keys_that_would_be_others_are_left_out() {
        for (key, why) in [
            ("train/../x", "part `..`"),
            ("./x", "part `.`"),
            ("a//b", "empty part"),
            ("/a", "begins with"),
            ("a&#10;b", "control"),
            ("a&amp;&#x7;", "control"),
        ] {
            assert!(wrong(&unescaped(key)).unwrap().contains(why), "{key}");
            let (good, more) = (
                "<Contents><Key>a/b</Key><Size>1</Size></Contents>",
                "<CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes>",
            );
            let bad = format!("<Contents><Key>{key}</Key><Size>2</Size></Contents>");
            let folder = format!("<CommonPrefixes><Prefix>{key}/</Prefix></CommonPrefixes>");
            let kept = check(listing(&format!("{bad}{good}{bad}{folder}{more}{folder}")).as_bytes()).unwrap().unwrap();
            assert_eq!(String::from_utf8(kept).unwrap(), listing(&format!("{good}{more}")), "{key}");
        }
        // The listing's own prefix may be any text, and is not one of its keys.
        for good in [
            "<Prefix>a//</Prefix><Contents><Key>a/b/</Key></Contents>",
            "<Contents><Key>a..b/...c/&lt;d&gt;</Key></Contents>",
        ] {
            assert_eq!(check(listing(good).as_bytes()).unwrap(), None);
        }
        assert_eq!(unescaped("a&lt;&amp;lt;&#228;&unknown;b&"), "a<&lt;äb");
    }

    #[test]
    fn requests_that_list_are_known_by_their_query() {
        assert!(asks("list-type=2&prefix=x") && asks("comp=list&restype=container"));
        assert!(!asks("") && !asks("versionId=list-type%3D2") && !asks("prefix=list-type=2x"));
    }
}
