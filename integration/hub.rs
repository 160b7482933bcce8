//! Datasets of the Hugging Face hub: equal to local ones, at one commit, and the token stays at the hub.

use std::{fs, path::Path, time::Instant};

use bytes::Bytes;
use futures::TryStreamExt;
use infeed::{
    Error, ErrorKind,
    dataset::open_source,
    source::{Object, Source},
};

use crate::support::{
    builder, drain, files_below,
    hub::{HubServer, REPO, TOKEN, url},
    photos::photos,
    plain,
};

async fn listed(source: &Source) -> infeed::Result<Vec<Object>> {
    let mut objects: Vec<Object> = source.list().try_collect().await?;
    objects.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(objects)
}

fn error_of<T>(result: infeed::Result<T>) -> Error {
    match result {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_hub_are_those_of_the_folder() {
    let server = HubServer::start();
    server.commit_folder(photos());
    server.configure(|config| config.page_size = 7);
    let source = server.source("");
    let objects = listed(&source).await.unwrap();
    let local = files_below(Path::new(photos()));
    // README.md too, .gitattributes not.
    assert_eq!(objects.len(), local.len() + 1);
    for object in objects.iter().filter(|object| object.name != "README.md") {
        let bytes = fs::read(Path::new(photos()).join(&object.name)).unwrap();
        assert_eq!(object.size, bytes.len() as u64);
        assert_eq!(object.extent(&source).read().await.unwrap(), bytes, "{}", object.name);
        let (from, to) = (object.size / 3, object.size / 2);
        assert_eq!(source.read(&object.name, from..to).await.unwrap(), bytes[from as usize..to as usize]);
    }
    assert_eq!(source.read("README.md", 4..11).await.unwrap(), "license");
    assert_eq!(source.verified().checksum, local.len() as u64, "whole files have the hash that was listed");
    let pages = server.requests().iter().filter(|request| request.contains("/tree/")).count();
    assert_eq!(pages, (local.len() + 2).div_ceil(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn images_in_folders_are_as_local_ones() {
    let server = HubServer::start();
    server.commit_folder(photos());
    let local = infeed::open(photos()).await.unwrap();
    let remote = open_source(server.source("")).await.unwrap();
    assert_eq!(local.fingerprint(), remote.fingerprint());
    let mut runs = Vec::new();
    for dataset in [local, remote] {
        let loader = builder(dataset)
            .batch_size(4)
            .transform(infeed::Transform::preset("imagenet-val").unwrap())
            .build()
            .await
            .unwrap();
        let batches = tokio::task::spawn_blocking(move || drain(loader.epoch(0))).await.unwrap().unwrap();
        runs.push(batches.iter().map(plain).collect::<Vec<_>>());
    }
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_changes_nothing_for_those_who_read() {
    let server = HubServer::start();
    let body = |text: &'static str| Bytes::from_static(text.as_bytes());
    let first = server.commit("main", [("a.bin", body("one")), ("data/b.bin", body("before"))]);
    let source = server.source("");
    let objects = listed(&source).await.unwrap();
    let second = server.commit("main", [("a.bin", body("two")), ("data/b.bin", body("after it"))]);
    assert_eq!(source.connection().unwrap().commit.as_deref(), Some(&*first));
    for (object, text) in objects.iter().zip(["one", "before"]) {
        assert_eq!(object.extent(&source).read().await.unwrap(), text);
    }
    assert_eq!(listed(&source).await.unwrap(), objects);
    // Who comes later sees the later one, by the branch; by the commit, whichever is named.
    let later = server.source("");
    assert_eq!(later.read("a.bin", 0..3).await.unwrap(), "two");
    assert_eq!(server.source(&format!("@{first}/data")).read("b.bin", 0..6).await.unwrap(), "before");
    assert_eq!(server.source(&format!("@{second}")).read("a.bin", 0..3).await.unwrap(), "two");
    // What somebody else listed at the first commit.
    let changed = objects[0].extent(&later).read().await.unwrap_err();
    assert_eq!(changed.kind(), ErrorKind::Corrupt, "{changed}");
    let reader: Vec<_> = server.requests().into_iter().filter(|request| request.contains("resolve/main")).collect();
    assert!(reader.is_empty(), "{reader:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_are_named_as_the_hub_names_them() {
    let server = HubServer::start();
    server.commit("main", [("x.bin", "main".into())]);
    server.commit("refs/convert/parquet", [("default/train/0.bin", "converted".into())]);
    server.commit("refs/pr/3", [("x.bin", "asked".into())]);
    for (revision, name, says) in [
        ("", "x.bin", "main"),
        ("@main", "x.bin", "main"),
        ("@~parquet", "default/train/0.bin", "converted"),
        ("@refs%2Fconvert%2Fparquet", "default/train/0.bin", "converted"),
        ("@refs/convert/parquet/default", "train/0.bin", "converted"),
        ("@refs/pr/3", "x.bin", "asked"),
    ] {
        let source = server.source(revision);
        assert_eq!(listed(&source).await.unwrap()[0].name, name, "{revision}");
        assert_eq!(source.read(name, 0..says.len() as u64).await.unwrap(), says, "{revision}");
    }
    // A file, and a dataset that has another name by now.
    let file = server.source("x.bin").as_object().await.unwrap().unwrap();
    assert_eq!(listed(&file).await.unwrap()[0].size, 4);
    assert!(server.source("y.bin").as_object().await.unwrap().is_none());
    let renamed = Source::parse_with("hf://datasets/old/photos", server.env(Some(TOKEN))).unwrap();
    assert_eq!(renamed.read("x.bin", 0..4).await.unwrap(), "main");
    let error = error_of(listed(&server.source("@v2")).await);
    assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("no revision `v2`"), "{error}");
}

/// Dropping the server fails whenever the storage saw a token; here, what makes it send again.
#[tokio::test(flavor = "multi_thread")]
async fn signed_urls_are_kept_until_they_expire() {
    let server = HubServer::start();
    server.commit("main", [("big.tar", Bytes::from(vec![7; 100_000]))]);
    let source = server.source("");
    source.connect().await.unwrap();
    let resolved = |server: &HubServer| server.requests().iter().filter(|r| r.contains("/resolve/")).count();
    for part in 0..10 {
        assert_eq!(source.read("big.tar", part * 9..part * 9 + 5).await.unwrap(), vec![7; 5]);
    }
    assert_eq!(resolved(&server), 1);
    server.expire();
    for part in 0..10 {
        assert_eq!(source.read("big.tar", part * 9..part * 9 + 5).await.unwrap(), vec![7; 5]);
    }
    assert_eq!(resolved(&server), 2);
    server.forget();
    // A storage that takes nothing at all.
    server.configure(|config| config.signed_from = u64::MAX);
    let error = source.read("big.tar", 0..5).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("127.0.0.1"), "{error}");
    assert!(server.requests().len() <= 4, "{:?}", server.requests());
    assert!(!format!("{error:?} {error:#}").contains("Signature"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_storage_damages_is_read_again_and_what_it_does_not_cut_is_cut_here() {
    let server = HubServer::start();
    let body: Vec<u8> = (0..50_000_u32).map(|n| ((n * n) >> 7) as u8).collect();
    server.commit("main", [("a.jpg", Bytes::from(body.clone()))]);
    let source = server.source("");
    let objects = listed(&source).await.unwrap();
    server.configure(|config| config.flipped = 1);
    assert_eq!(objects[0].extent(&source).read().await.unwrap(), body);
    server.configure(|config| config.flipped = 99);
    let error = objects[0].extent(&source).read().await.unwrap_err();
    assert!(error.to_string().contains("SHA-256"), "{error}");
    server.configure(|config| (config.flipped, config.whole) = (0, true));
    assert_eq!(source.read("a.jpg", 100..200).await.unwrap(), body[100..200]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_hub_is_waited_for_as_long_as_it_says() {
    let [server, other] = [HubServer::start(), HubServer::start()];
    for server in [&server, &other] {
        server.commit("main", [("README.md", "0123456789".into()), ("x.bin", "x".into())]);
    }
    let lists = async {
        server.configure(|config| config.busy = (2, 1));
        let (source, began) = (server.source(""), Instant::now());
        assert_eq!(listed(&source).await.unwrap().len(), 2);
        assert!(began.elapsed().as_secs_f64() >= 2.0, "{:?}", began.elapsed());
    };
    let reads = async {
        let source = other.source("");
        source.connect().await.unwrap();
        other.forget();
        // Reads ask in between, but not the hub.
        other.configure(|config| config.busy = (1, 1));
        let began = Instant::now();
        assert_eq!(source.read("README.md", 0..3).await.unwrap(), "012");
        assert!(began.elapsed().as_secs_f64() >= 1.0, "{:?}", began.elapsed());
        assert_eq!(other.requests().len(), 3, "{:?}", other.requests());
    };
    // Beside each other: a header tells whole seconds, which pass.
    futures::join!(lists, reads);
    server.configure(|config| config.busy = (9, 200));
    let hasty = server.source("").with_patience(std::time::Duration::from_secs(1));
    let error = error_of(listed(&hasty).await);
    assert!(
        error.to_string().contains("receives too many requests") && error.hint().unwrap().contains("200 s"),
        "{error} {:?}",
        error.hint()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_say_what_to_do() {
    let server = HubServer::start();
    server.commit("main", [("x.bin", "x".into())]);
    let open = async |repo: &str, token: Option<&str>| {
        let source = Source::parse_with(&format!("hf://datasets/{repo}"), server.env(token)).unwrap();
        let error = error_of(listed(&source).await);
        let told = format!("{error:?} {error:#} {:?}", error.hint());
        assert!(!told.contains(TOKEN) && !told.contains("wrongToken"), "{told}");
        (error.kind(), format!("{error} {}", error.hint().unwrap_or_default()))
    };
    let is = |(kind, told): (ErrorKind, String), wanted: ErrorKind, words: &[&str]| {
        assert!(kind == wanted && words.iter().all(|word| told.contains(word)), "{kind:?} {told}");
    };
    is(open("lab/nothing", None).await, ErrorKind::NotFound, &["no dataset lab/nothing", "set HF_TOKEN"]);
    is(open("lab/nothing", Some(TOKEN)).await, ErrorKind::NotFound, &["no dataset lab/nothing", "HF_TOKEN"]);
    is(open(REPO, Some("hf_wrongToken")).await, ErrorKind::Denied, &["does not accept the token", "settings/tokens"]);
    server.configure(|config| config.private = true);
    is(open(REPO, None).await, ErrorKind::NotFound, &["or it is private", "set HF_TOKEN"]);
    assert_eq!(listed(&server.source("")).await.unwrap().len(), 1);
    server.configure(|config| (config.private, config.gated) = (false, true));
    is(open(REPO, None).await, ErrorKind::Denied, &["is gated", "accept its terms at", "HF_TOKEN"]);
    is(open(REPO, Some(TOKEN)).await, ErrorKind::Denied, &["is gated", "has no access yet", "/datasets/lab/photos"]);
    // Nobody there, and nobody who may write.
    let env = [("HF_ENDPOINT", "http://127.0.0.1:1"), ("HF_HOME", "/nowhere")];
    let gone = Source::parse_with(&url(""), env).unwrap().with_patience(std::time::Duration::from_millis(300));
    let error = error_of(listed(&gone).await);
    assert!(error.to_string().contains("cannot be reached"), "{error}");
    let error = Source::parse("hub://x/y").unwrap_err();
    assert!(error.hint().unwrap().contains("hf://datasets/OWNER/NAME"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_shares_one_listing_of_the_hub() {
    let server = HubServer::start();
    server.commit_folder(photos());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("listing").display().to_string();
    let open = async |rank| open_source(server.source("")).listing(file.clone(), rank).await;
    let first = open(0).await.unwrap();
    // Seven others ask the hub for nothing, also when the branch has moved on meanwhile.
    server.commit("main", [("a/1.jpg", Bytes::from("another"))]);
    server.forget();
    for rank in 1..8 {
        assert_eq!(open(rank).await.unwrap().fingerprint(), first.fingerprint());
    }
    assert_eq!(server.requests(), [""; 0]);
    // A commit that is not the listing's, be it damaged, is another place.
    let bytes = std::fs::read(&file).unwrap();
    let mut other = bytes.clone();
    other[10] = if other[10] == b'0' { b'1' } else { b'0' };
    std::fs::write(&file, other).unwrap();
    let error = error_of(open(1).await);
    assert!(error.to_string().contains("of another place"), "{error}");
}
