//! Explains the hub's refusals, and what to do about them.

use infeed_core::error::{Error, ErrorKind};
use reqwest::header::HeaderMap;

use super::{name::Repo, token::Token};

/// What was attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Looking up the commit, which is the first request.
    Revision,
    Listing,
    Reading,
}

/// `None` if another request may succeed, or if the refusal has no particular meaning.
pub(super) fn explain(
    status: u16,
    headers: &HeaderMap,
    doing: Doing,
    repo: &Repo,
    token: &Token,
    endpoint: &str,
) -> Option<Error> {
    let told = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (code, words) = (told("x-error-code"), told("x-error-message"));
    let (known, who) = (token.header.is_some(), &token.provider);
    let error = |kind, what: String| Error::new(kind, what);
    let page = format!("{endpoint}/datasets/{repo}");
    Some(match (status, code) {
        (401 | 403, "GatedRepo") if known => error(
            ErrorKind::Denied,
            format!("the dataset {repo} is gated, and the owner of the token ({who}) has no access yet"),
        )
        .with_hint(format!(
            "accept its terms at {page}, or wait for approval; a fine-grained token needs access to gated data \
             sets too"
        )),
        (401 | 403, "GatedRepo") => error(ErrorKind::Denied, format!("the dataset {repo} is gated"))
            .with_hint(format!("accept its terms at {page}, and set HF_TOKEN to your token")),
        (_, "DisabledRepo") => {
            error(ErrorKind::Denied, format!("the hub has disabled the dataset {repo}")).with_hint(page)
        }
        (404, "RevisionNotFound") => {
            error(ErrorKind::NotFound, format!("the dataset {repo} has no revision `{}`", repo.revision))
                .with_hint(format!("write a revision from {page}/tree/main after the `@`, or omit it for `main`"))
        }
        (401, _) if known && (code.is_empty() || words.contains("credentials")) => {
            error(ErrorKind::Denied, format!("the hub does not accept the token ({who})"))
                .with_hint(format!("create a new one at {endpoint}/settings/tokens, or unset it to read public data"))
        }
        // For a dataset that does not exist, the hub answers with this code if the token is valid, and with 401
        // otherwise.
        (401, _) | (404, "RepoNotFound") => {
            let hint = match known {
                true => format!("check its name; a private one needs a token that may read it (this one: {who})"),
                false => "check its name; for a private one, set HF_TOKEN to a token that may read it".to_owned(),
            };
            error(ErrorKind::NotFound, format!("there is no dataset {repo} at {endpoint}, or it is private"))
                .with_hint(hint)
        }
        (404, _) if doing == Doing::Revision => {
            error(ErrorKind::NotFound, format!("there is no dataset {repo} at {endpoint}"))
                .with_hint("check its name, and HF_ENDPOINT")
        }
        (403, _) => error(ErrorKind::Denied, format!("the token ({who}) may not read the dataset {repo}")).with_hint(
            format!("allow it to read the contents of {repo} at {endpoint}/settings/tokens, or use another"),
        ),
        _ => return None,
    })
}
