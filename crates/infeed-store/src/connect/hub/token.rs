//! The hub's address, and the token.

use std::path::Path;

use infeed_core::error::{Error, ErrorKind, Result};
use reqwest::header::HeaderValue;
use url::{Host, Url};

use super::super::Vars;
use crate::Beside;

const HUB: &str = "https://huggingface.co";

/// `HF_ENDPOINT`, or the hub itself. Without a `/` at the end.
pub(super) fn endpoint(vars: &Vars) -> Result<Url> {
    let given = vars.get("HF_ENDPOINT").unwrap_or(HUB);
    let bad = |what: &str| Error::config(format!("HF_ENDPOINT {what}"));
    let parsed = Url::parse(given.trim_end_matches('/')).ok();
    let parsed = parsed.filter(|url| url.has_host() && matches!(url.scheme(), "http" | "https"));
    // Not shown before it is known to contain no password.
    let Some(url) = parsed else { return Err(bad("is not a url").with_hint("set it to https://host, or unset it")) };
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(bad("holds credentials or a query").with_hint("set HF_TOKEN to the token"));
    }
    let here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    if url.scheme() == "http" && !here && !vars.flag("ALLOW_HTTP")? {
        return Err(
            bad("is not encrypted, which would expose a token").with_hint("use https://, or set ALLOW_HTTP=true")
        );
    }
    Ok(url)
}

/// The token for requests.
#[derive(Debug)]
pub(super) struct Token {
    /// `None`: anonymous, which is enough for public datasets.
    pub(super) header: Option<HeaderValue>,
    /// Where the token came from, for messages.
    pub(super) provider: String,
}

/// Looks in the same places as the hub's own tools: `HF_TOKEN`, otherwise a file.
pub(super) fn find(vars: &Vars) -> Result<Token> {
    if let Some((name, token)) =
        ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"].into_iter().find_map(|name| Some((name, vars.get(name)?)))
    {
        return Ok(Token { header: Some(header(token, name)?), provider: name.into() });
    }
    let home = |name: &str, below: &str| vars.get(name).map(|folder| Path::new(folder).join(below));
    let file = vars
        .get("HF_TOKEN_PATH")
        .map(Into::into)
        .or_else(|| home("HF_HOME", "token"))
        .or_else(|| home("XDG_CACHE_HOME", "huggingface/token"))
        .or_else(|| home("HOME", ".cache/huggingface/token"));
    let nobody = || Token { header: None, provider: "none".into() };
    let Some(file) = file else { return Ok(nobody()) };
    match Beside::Note.read_text(&file) {
        Ok(text) if text.trim().is_empty() => Ok(nobody()),
        Ok(text) => {
            let provider = file.display().to_string();
            Ok(Token { header: Some(header(text.trim(), &provider)?), provider })
        }
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => Ok(nobody()),
        Err(e) => Err(Error::new(ErrorKind::Denied, "the hub's token file cannot be read")
            .at_object(file.display().to_string())
            .with_hint("set HF_TOKEN instead, or allow this user to read it")
            .with_source(e)),
    }
}

fn header(token: &str, provider: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| Error::config(format!("{provider} is not a token: it has spaces or invalid characters")))?;
    // Keeps it out of logs and of tables of compressed headers.
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_from_where_the_hubs_tools_keep_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::create_dir_all(path("huggingface")).unwrap();
        std::fs::write(path("token"), "of_home\n").unwrap();
        std::fs::write(path("huggingface/token"), "of_cache\n").unwrap();
        let found = |vars: &[(&str, String)]| {
            let token = find(&vars.iter().map(|(k, v)| (*k, v.clone())).collect()).unwrap();
            token.header.map(|value| value.to_str().unwrap().to_owned())
        };
        let home = ("HF_HOME", path(""));
        let told = |text: &str| Some(format!("Bearer {text}"));
        assert_eq!(found(&[("HF_TOKEN", " hf_x ".into()), home.clone()]), told("hf_x"));
        assert_eq!(found(&[home, ("XDG_CACHE_HOME", path(""))]), told("of_home"));
        assert_eq!(found(&[("XDG_CACHE_HOME", path(""))]), told("of_cache"));
        assert_eq!(found(&[("HOME", path(""))]), None);
        assert_eq!(found(&[("HF_HOME", path("token"))]), None, "a file where a folder should be");
        assert_eq!(found(&[]), None);
        let error = find(&[("HF_TOKEN", "se\ncret")].into_iter().collect()).unwrap_err();
        assert!(error.to_string().contains("HF_TOKEN") && !error.to_string().contains("cret"), "{error}");
    }

    #[test]
    fn a_token_goes_to_no_endpoint_that_is_not_encrypted() {
        let at = |vars: &[(&str, &str)]| endpoint(&vars.iter().copied().collect()).map(|url| url.to_string());
        assert_eq!(at(&[]).unwrap(), "https://huggingface.co/");
        assert_eq!(at(&[("HF_ENDPOINT", "https://hub.example/hf/")]).unwrap(), "https://hub.example/hf");
        for here in ["http://127.0.0.1:80", "http://localhost:9", "http://[::1]:1"] {
            assert!(at(&[("HF_ENDPOINT", here)]).is_ok(), "{here}");
        }
        for (wrong, says) in [
            ("http://10.0.0.1", "not encrypted"),
            ("huggingface.co", "not a url"),
            ("ftp://x", "not a url"),
            ("https://me:secret@hub.example", "credentials"),
        ] {
            let error = at(&[("HF_ENDPOINT", wrong)]).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("secret"), "{error}");
        }
        assert!(at(&[("HF_ENDPOINT", "http://10.0.0.1"), ("ALLOW_HTTP", "true")]).is_ok());
    }
}
