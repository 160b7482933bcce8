//! What a listing's answer must be, before `object_store` reads it: it takes any XML for a listing of nothing, and
//! takes slashes off keys.

use std::borrow::Cow;

use infeed_core::error::{Error, ErrorKind, Result};

/// Bytes of a strange answer that are told.
const TOLD: usize = 40;

/// Whether a request lists: of S3 and Google, of Azure.
pub(super) fn asks(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "list-type=2" | "comp=list"))
}

/// # Errors
/// `Io` for what is no listing, and for one that breaks off; `Unsupported` for a key that cannot be read by its name.
pub(super) fn check(body: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(body);
    let head = String::from_utf8_lossy(&body[..body.len().min(1024)]);
    if head.contains("<EnumerationResults") {
        // Azure's, whose names come with other rules.
        return Ok(());
    }
    if !head.contains("ListBucketResult") {
        let begin: String = text.trim_start().chars().take(TOLD).collect();
        let what = match begin.is_empty() {
            true => "the answer to a listing is empty".to_owned(),
            false => format!("the answer to a listing is none: it begins with {begin:?}"),
        };
        return Err(Error::new(ErrorKind::Io, what)
            .hint("check the endpoint, and whether a proxy or a log-in page stands between"));
    }
    let token = elements(&text, "NextContinuationToken").any(|token| !token.is_empty());
    if elements(&text, "IsTruncated").any(|truncated| truncated == "true") && !token {
        let what = "the listing breaks off: the store says that there is more, and gives no token to ask for it";
        return Err(Error::new(ErrorKind::Io, what).hint("list again; if it stays so, the store is broken"));
    }
    let folders = elements(&text, "CommonPrefixes").flat_map(|common| elements(common, "Prefix"));
    elements(&text, "Key").chain(folders).try_for_each(|key| check_key(&unescaped(key)))
}

/// Whether a page names nothing: no object and no folder. Of S3 and Google, of Azure.
pub(super) fn is_empty(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    let has = |name: &str| elements(&text, name).next().is_some();
    !["Contents", "CommonPrefixes", "Blob", "BlobPrefix"].into_iter().any(has)
}

/// Names that `object_store` refuses, or turns into others in silence. A slash at the end stays: that is a folder's mark.
fn check_key(key: &str) -> Result<()> {
    let parts = || key.strip_suffix('/').unwrap_or(key).split('/');
    let wrong = if key.starts_with('/') {
        "begins with `/`"
    } else if let Some(dots) = parts().find(|part| matches!(*part, "." | "..")) {
        if dots == "." { "has a part `.`" } else { "has a part `..`" }
    } else if parts().any(str::is_empty) {
        "has an empty part"
    } else if key.contains(|c: char| c.is_ascii_control()) {
        "has control characters"
    } else {
        return Ok(());
    };
    Err(Error::new(
        ErrorKind::Unsupported,
        format!("the listing holds the key {key:?}, which {wrong}: no name to read by"),
    )
    .hint("rename or remove that object, or open a prefix without it"))
}

/// The texts of the elements of a name, which have no attributes.
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
    fn keys_that_would_be_others_are_named() {
        for (key, named) in [
            ("train/../x", "\"train/../x\""),
            ("./x", "\"./x\""),
            ("a//b", "\"a//b\""),
            ("/a", "\"/a\""),
            ("a&#10;b", "\"a\\nb\""),
            ("a&amp;&#x7;", "\"a&\\u{7}\""),
        ] {
            for inside in [
                format!("<Contents><Key>{key}</Key></Contents>"),
                format!("<CommonPrefixes><Prefix>{key}/</Prefix></CommonPrefixes>"),
            ] {
                let error = check(listing(&inside).as_bytes()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.to_string().contains(named.trim_end_matches('"')), "{named}: {error}");
            }
        }
        // The listing's own prefix, which may be anything, is not one of its keys.
        check(listing("<Prefix>a//</Prefix><Contents><Key>a/b/</Key></Contents>").as_bytes()).unwrap();
        check(listing("<Contents><Key>a..b/...c/&lt;d&gt;</Key></Contents>").as_bytes()).unwrap();
        assert_eq!(unescaped("a&lt;&amp;lt;&#228;&unknown;b&"), "a<&lt;äb");
    }

    #[test]
    fn requests_that_list_are_known_by_their_query() {
        assert!(asks("list-type=2&prefix=x") && asks("comp=list&restype=container"));
        assert!(!asks("") && !asks("versionId=list-type%3D2") && !asks("prefix=list-type=2x"));
    }
}
