//! A stand-in of the Hugging Face hub: what of its HTTP a reader of datasets meets.
//!
//! ```text
//! /api/datasets/O/N/revision/REV      {"sha": …}
//! /api/datasets/O/N/tree/SHA[/PATH]   entries, in pages: Link: <…&cursor=…>; rel="next"
//! /datasets/O/N/resolve/SHA/FILE      small text: 307 to itself; all else: 302 to a server of its own, signed
//! ```
//!
//! The server that it sends to is one that must never see a token; dropping the hub fails the test if it did.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use infeed::source::Source;
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use super::{
    files_below,
    web::{Answer, Request, Web, decoded},
};

/// The dataset that `put` means.
pub(crate) const REPO: &str = "lab/photos";
pub(crate) const TOKEN: &str = "hf_secretOfTheTests";

type Files = BTreeMap<String, Bytes>;

/// How the hub behaves.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) page_size: usize,
    /// Only [`TOKEN`] may read.
    pub(crate) private: bool,
    /// Nobody has been let in.
    pub(crate) gated: bool,
    /// Answers 429 to so many requests, with this `Retry-After`.
    pub(crate) busy: (u32, u64),
    /// The storage refuses what was signed before this number.
    pub(crate) signed_from: u64,
    /// The storage takes no notice of `Range`.
    pub(crate) whole: bool,
    /// One bit of what the storage gives is another, so many times.
    pub(crate) flipped: u32,
}

#[derive(Debug)]
struct State {
    config: Config,
    branches: BTreeMap<String, String>,
    commits: BTreeMap<String, Files>,
    /// By their hash.
    storage: BTreeMap<String, Bytes>,
    signatures: u64,
    leaks: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct HubServer {
    state: Arc<Mutex<State>>,
    pub(crate) hub: Web,
    pub(crate) storage: Web,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Git's hash, or something as long.
fn oid(body: &[u8]) -> String {
    format!("{:040x}", xxh3_128(body))
}

/// Whether git keeps it itself.
fn is_small(path: &str) -> bool {
    [".md", ".csv", ".jsonl", ".gitattributes", ".txt"].iter().any(|ending| path.ends_with(ending))
}

impl HubServer {
    pub(crate) fn start() -> Self {
        let config = Config {
            page_size: 1000,
            private: false,
            gated: false,
            busy: (0, 0),
            signed_from: 0,
            whole: false,
            flipped: 0,
        };
        let state = Arc::new(Mutex::new(State {
            config,
            branches: BTreeMap::new(),
            commits: BTreeMap::new(),
            storage: BTreeMap::new(),
            signatures: 0,
            leaks: Vec::new(),
        }));
        let of_storage = Arc::clone(&state);
        let storage = Web::start(move |request| stored(&mut lock(&of_storage), request));
        let (of_hub, elsewhere) = (Arc::clone(&state), storage.endpoint().to_owned());
        let hub = Web::start(move |request| answer(&mut lock(&of_hub), request, &elsewhere));
        Self { state, hub, storage }
    }

    pub(crate) fn configure(&self, change: impl FnOnce(&mut Config)) {
        change(&mut lock(&self.state).config);
    }

    /// What was signed until now is refused from now on.
    pub(crate) fn expire(&self) {
        let mut state = lock(&self.state);
        state.config.signed_from = state.signatures + 1;
    }

    /// A commit on a branch: these files and those of the commit before. Gives its hash.
    pub(crate) fn commit<'a>(&self, branch: &str, files: impl IntoIterator<Item = (&'a str, Bytes)>) -> String {
        let mut state = lock(&self.state);
        let mut all = state.branches.get(branch).map(|sha| state.commits[sha].clone()).unwrap_or_default();
        for (name, body) in files {
            state.storage.insert(hex(&Sha256::digest(&body)), body.clone());
            all.insert(name.to_owned(), body);
        }
        let sha = oid(format!("{branch} {} {all:?}", state.commits.len()).as_bytes());
        state.commits.insert(sha.clone(), all);
        state.branches.insert(branch.to_owned(), sha.clone());
        sha
    }

    /// A commit on `main` of all files of a folder, and what every dataset has beside them.
    pub(crate) fn commit_folder(&self, folder: impl AsRef<Path>) -> String {
        let folder = folder.as_ref();
        let name = |path: &Path| path.strip_prefix(folder).expect("it is inside").to_str().expect("a name").to_owned();
        let files = files_below(folder);
        let mut files: Vec<(String, Bytes)> =
            files.iter().map(|path| (name(path), std::fs::read(path).expect("a file").into())).collect();
        files.push(("README.md".into(), "---\nlicense: mit\n---\n# Photos\n".into()));
        files.push((".gitattributes".into(), "*.parquet filter=lfs\n".into()));
        self.commit("main", files.iter().map(|(name, body)| (name.as_str(), body.clone())))
    }

    /// The variables of a client.
    pub(crate) fn env(&self, token: Option<&str>) -> Vec<(String, String)> {
        // The home of whoever runs the tests may hold a token.
        let mut env = vec![
            ("HF_ENDPOINT".to_owned(), self.hub.endpoint().to_owned()),
            ("HF_HOME".to_owned(), "/nowhere".to_owned()),
        ];
        env.extend(token.map(|token| ("HF_TOKEN".to_owned(), token.to_owned())));
        env
    }

    pub(crate) fn source(&self, path: &str) -> Source {
        self.source_of(path, Some(TOKEN))
    }

    pub(crate) fn source_of(&self, path: &str, token: Option<&str>) -> Source {
        Source::parse_with(&url(path), self.env(token)).expect("a url of ours")
    }

    /// Methods and pages that were asked for: of the hub, then of the storage.
    pub(crate) fn requests(&self) -> Vec<String> {
        let all = self.hub.log().into_iter().chain(self.storage.log());
        all.map(|request| format!("{} {}", request.method, request.path)).collect()
    }

    pub(crate) fn forget(&self) {
        self.hub.forget();
        self.storage.forget();
    }
}

/// Of a path in the dataset; `@` begins a revision.
pub(crate) fn url(path: &str) -> String {
    match path {
        "" => format!("hf://datasets/{REPO}"),
        revision if revision.starts_with('@') => format!("hf://datasets/{REPO}{revision}"),
        path => format!("hf://datasets/{REPO}/{path}"),
    }
}

impl Drop for HubServer {
    fn drop(&mut self) {
        let leaks = &lock(&self.state).leaks;
        assert!(leaks.is_empty() || std::thread::panicking(), "a token was sent to {leaks:?}");
    }
}

fn refused(status: u16, code: &'static str, words: &'static str) -> Answer {
    let body = format!("{{\"error\":\"{words}\"}}");
    let answer = Answer::new(status, body).with("x-error-message", words);
    if code.is_empty() { answer } else { answer.with("x-error-code", code) }
}

fn answer(state: &mut State, request: &Request, storage: &str) -> Answer {
    let path = decoded(&request.path.replace("%2F", "\u{1}"));
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    if let (1.., after) = state.config.busy {
        state.config.busy.0 -= 1;
        return refused(429, "", "We had to rate limit your IP").with("retry-after", after.to_string());
    }
    let token = request.header("authorization");
    let known = token == Some(&format!("Bearer {TOKEN}"));
    if token.is_some() && !known {
        return refused(401, "", "Invalid credentials in Authorization header");
    }
    let (kind, owner, name, rest) = match parts[..] {
        ["api", "datasets", owner, name, kind, ref rest @ ..] => (kind, owner, name, rest),
        ["datasets", owner, name, "resolve", ref rest @ ..] => ("resolve", owner, name, rest),
        ["api", "resolve-cache", "datasets", owner, name, ref rest @ ..] => ("resolve-cache", owner, name, rest),
        _ => return refused(404, "", "Sorry, we can't find the page you are looking for."),
    };
    if owner == "old" {
        // It was renamed.
        return Answer::new(307, "").with("location", request.path.replace("/old/photos", "/lab/photos"));
    }
    if format!("{owner}/{name}") != REPO || (state.config.private && !known) {
        return match known {
            true => refused(404, "RepoNotFound", "Repository not found"),
            false => refused(401, "RepoNotFound", "Repository not found"),
        };
    }
    if state.config.gated && kind != "revision" {
        return refused(if known { 403 } else { 401 }, "GatedRepo", "Access to dataset lab/photos is restricted");
    }
    let revision = rest.first().copied().unwrap_or_default().replace('\u{1}', "/");
    let sha = state.branches.get(&revision).cloned().unwrap_or(revision);
    let Some(files) = state.commits.get(&sha) else {
        return refused(404, "RevisionNotFound", "Invalid rev id");
    };
    let inside = rest.get(1..).unwrap_or_default().join("/");
    match kind {
        "revision" => Answer::new(200, format!("{{\"id\":\"{REPO}\",\"sha\":\"{sha}\",\"private\":false}}")),
        "tree" => tree(state, request, files, &inside),
        "resolve" | "resolve-cache" => {
            let Some(body) = files.get(&inside) else { return refused(404, "EntryNotFound", "Entry not found") };
            if !is_small(&inside) {
                let hash = hex(&Sha256::digest(body));
                let size = body.len();
                state.signatures += 1;
                let to = format!("{storage}/{hash}?X-Signature={}", state.signatures);
                return Answer::new(302, "")
                    .with("location", to)
                    .with("x-linked-etag", format!("\"{hash}\""))
                    .with("x-linked-size", size.to_string())
                    .with("x-repo-commit", sha);
            }
            if kind == "resolve" {
                let to = request.path.replace("/datasets/", "/api/resolve-cache/datasets/").replace("/resolve/", "/");
                return Answer::new(307, "").with("location", to);
            }
            Answer::file(request, body).with("etag", format!("\"{}\"", oid(body))).with("x-repo-commit", sha)
        }
        _ => refused(404, "", "Not Found"),
    }
}

fn tree(state: &State, request: &Request, files: &Files, folder: &str) -> Answer {
    let start = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let below: Vec<_> = files.iter().filter(|(name, _)| name.starts_with(&start)).collect();
    if below.is_empty() && !folder.is_empty() {
        return refused(404, "EntryNotFound", "Entry not found");
    }
    assert_eq!((request.parameter("recursive"), request.parameter("expand")), (Some("true"), Some("false")));
    let first: usize = request.parameter("cursor").map_or(0, |cursor| cursor.parse().expect("a cursor of ours"));
    let page = below.iter().skip(first).take(state.config.page_size);
    let mut entries =
        vec![serde_json::json!({"type": "directory", "oid": oid(b"folder"), "size": 0, "path": "folder"})];
    entries.extend(page.map(|(name, body)| match is_small(name) {
        true => serde_json::json!({"type": "file", "oid": oid(body), "size": body.len(), "path": name}),
        false => serde_json::json!({
            "type": "file", "oid": oid(body), "size": body.len(), "path": name,
            "lfs": {"oid": hex(&Sha256::digest(body)), "size": body.len(), "pointerSize": 130}
        }),
    }));
    let answer = Answer::new(200, serde_json::Value::from(entries).to_string());
    let next = first + state.config.page_size;
    if next >= below.len() {
        return answer;
    }
    // As behind a proxy, where the hub calls itself by another name.
    let link = format!("<https://hub.example{}?recursive=true&expand=false&cursor={next}>; rel=\"next\"", request.path);
    answer.with("link", link)
}

fn stored(state: &mut State, request: &Request) -> Answer {
    if request.header("authorization").is_some() {
        state.leaks.push(request.path.clone());
    }
    let signature: u64 = request.parameter("X-Signature").and_then(|n| n.parse().ok()).unwrap_or(0);
    if signature < state.config.signed_from {
        return Answer::new(403, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>");
    }
    let Some(body) = state.storage.get(request.path.trim_start_matches('/')) else { return Answer::new(404, "") };
    if state.config.whole {
        return Answer::new(200, body.clone());
    }
    if state.config.flipped > 0 {
        state.config.flipped -= 1;
        let mut other = body.to_vec();
        other[body.len() / 2] ^= 1;
        return Answer::file(request, &other.into());
    }
    // A tag of its own, which says nothing.
    Answer::file(request, body).with("etag", "\"0123456789abcdef0123456789abcdef\"")
}
