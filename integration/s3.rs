//! Datasets in a bucket: equal to local ones, whatever the network does.

use std::{
    fs,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt};
use infeed::{
    Error, ErrorKind,
    dataset::open_source,
    source::{Object, Source},
};
use object_store::{ObjectStore, ObjectStoreExt, path::Path};

use crate::support::{
    PATIENCE, builder, drain,
    photos::{jpeg, photos},
    plain,
    s3::{ACCESS_KEY, Config, Fault, Rule, S3Server, SECRET_KEY},
};

/// The server has to be one to the client before it can test anything else.
#[tokio::test]
async fn the_server_speaks_s3() {
    let server = S3Server::start();
    let store = server.store();
    let key = Path::parse("a folder/ö+&<%20>~.bin").unwrap();
    store.put(&key, "0123456789".into()).await.unwrap();
    assert_eq!(store.get(&key).await.unwrap().bytes().await.unwrap(), "0123456789");
    assert_eq!(store.get_range(&key, 2..5).await.unwrap(), "234");
    assert_eq!(store.head(&key).await.unwrap().size, 10);
    assert_eq!(server.log()[2].range.as_deref(), Some("2-4"));
    for i in 0..2_500 {
        server.put(&format!("many/{}/{i:04}", i % 3), "x");
    }
    let keys: Vec<_> = store.list(Some(&Path::from("many"))).map_ok(|meta| meta.location).try_collect().await.unwrap();
    assert_eq!(keys.len(), 2_500);
    assert!(keys.is_sorted());
    server.configure(|config| config.page_size = 2);
    let top = store.list_with_delimiter(None).await.unwrap();
    assert_eq!(top.common_prefixes.len(), 2);
    let top = store.list_with_delimiter(Some(&Path::from("many"))).await.unwrap();
    assert_eq!((top.common_prefixes.len(), top.objects.len()), (3, 0));
    let all: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert_eq!(all.len(), 2_501);
    server.fault(Fault::slow_down());
    server.rule(Rule::new(Fault::Reset).times(1));
    assert!(store.get(&key).await.unwrap_err().to_string().contains("SlowDown"));
    store.get(&key).await.unwrap();
    server.configure(|config| config.secret_key = "another".into());
    assert!(store.get(&key).await.unwrap_err().to_string().contains("SignatureDoesNotMatch"));
}

/// `Short` must be what it says: an answer in which nothing looks wrong.
#[tokio::test]
async fn faults_are_what_they_say() {
    let server = S3Server::start();
    server.put("a", vec![7; 1000]);
    let (store, key) = (server.store(), Path::from("a"));
    server.fault(Fault::Short);
    assert_eq!(store.get(&key).await.unwrap().bytes().await.unwrap().len(), 500);
    server.fault(Fault::FlippedBit);
    assert_ne!(store.get(&key).await.unwrap().bytes().await.unwrap(), vec![7; 1000]);
    for fault in [Fault::Cut, Fault::ResetInBody] {
        server.fault(fault);
        let mut body = store.get(&key).await.unwrap().into_stream();
        let mut got = 0;
        let error = loop {
            match body.next().await {
                Some(Ok(part)) => got += part.len(),
                other => break other,
            }
        };
        // Without retries the rest is an error, after the half.
        assert!(got <= 500 && matches!(error, Some(Err(_))), "{got} {error:?}");
    }
    let before = server.etag("a");
    server.fault(Fault::Replaced);
    let result = store.get(&key).await.unwrap();
    assert_ne!(result.meta.e_tag, Some(before));
    server.fault(Fault::Deleted);
    assert!(matches!(store.get(&key).await, Err(object_store::Error::NotFound { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_from_a_bucket_equal_local_ones() {
    let server = S3Server::start();
    server.put_folder(photos(), "photos");
    let local = infeed::open(photos()).await.unwrap();
    let remote = open_source(server.source("photos")).await.unwrap();
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
    assert!(runs[0] == runs[1] && !runs[0].is_empty());
}

#[test]
fn a_bucket_is_opened_and_read_where_nobody_awaits() {
    let server = S3Server::start();
    server.put_folder(photos(), "photos");
    let local = infeed::open(photos()).blocking().unwrap();
    let remote = open_source(server.source("photos")).blocking().unwrap();
    assert_eq!(local.fingerprint(), remote.fingerprint());
    let mut runs = Vec::new();
    for dataset in [local, remote] {
        let transform = infeed::Transform::preset("imagenet-val").unwrap();
        let loader = builder(dataset).batch_size(4).transform(transform).build_blocking().unwrap();
        runs.push(drain(loader.epoch(0)).unwrap().iter().map(plain).collect::<Vec<_>>());
    }
    assert!(runs[0] == runs[1] && !runs[0].is_empty());
    let nothing = open_source(server.source("nothing")).blocking().unwrap_err();
    let asked = futures::executor::block_on(async { open_source(server.source("nothing")).blocking().unwrap_err() });
    assert_eq!((nothing.kind(), nothing.what()), (asked.kind(), asked.what()));
    assert!(nothing.to_string().ends_with(nothing.hint().expect("what to do")), "{nothing}");
}

/// The client of a runtime that nobody drives any more must not be used by another one.
#[test]
fn a_dataset_may_be_opened_on_one_runtime_and_read_on_another() {
    let server = S3Server::start();
    server.put("x", "0123456789");
    let source = server.source("");
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    assert_eq!(first.block_on(source.read("x", 0..3)).unwrap(), "012");
    // `first` lives, with an idle connection in its client, and does nothing.
    let read = async { tokio::time::timeout(PATIENCE, source.read("x", 0..3)).await };
    assert_eq!(second.block_on(read).expect("it does not hang").unwrap(), "012");
    drop(first);
    assert_eq!(second.block_on(source.read("x", 3..4)).unwrap(), "3");
}

async fn names(source: &Source) -> Vec<String> {
    let objects: Vec<Object> = source.list().try_collect().await.unwrap();
    let mut names: Vec<_> = objects.into_iter().map(|object| object.name).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn listings_find_everything_once_and_several_folders_at_a_time() {
    let server = S3Server::start();
    let mut expected = Vec::new();
    for i in 0..2_600 {
        let name = format!("class {}/{i:05}.jpg", i % 13);
        server.put(&format!("set/train/{name}"), "x");
        expected.push(format!("train/{name}"));
    }
    // Beside each other in the order of bytes: `a-b/` comes before `a/`.
    for name in ["train/loose.jpg", "train/class 1-2/x.jpg", "train/class 1.jpg"] {
        server.put(&format!("set/{name}"), "x");
        expected.push(name.to_owned());
    }
    server.put("set/train/", "");
    server.put("settings", "not below set/");
    expected.sort_unstable();
    for page_size in [1000, 7] {
        server.configure(|config| config.page_size = page_size);
        server.forget();
        // Of fewer at a time none would be answered, and each be asked for again.
        server.rule(Rule::new(Fault::Together(5)).listings().key("train/class"));
        assert!(names(&server.source("set")).await == expected);
        let asked = server.log().into_iter().map(|seen| seen.query).collect::<Vec<_>>();
        assert!((1..asked.len()).all(|n| !asked[..n].contains(&asked[n])), "a page is asked for twice");
        server.heal();
    }
    // Many folders with few objects are not asked for one by one.
    for i in 0..300 {
        server.put(&format!("shallow/{i}/x.jpg"), "x");
    }
    server.configure(|config| config.page_size = 100);
    server.forget();
    assert_eq!(names(&server.source("shallow")).await.len(), 300);
    assert!(server.log().len() < 20, "{}", server.log().len());
    // A flat prefix is one listing.
    for i in 0..250 {
        server.put(&format!("flat/{i}.jpg"), "x");
    }
    server.forget();
    assert_eq!(names(&server.source("flat")).await.len(), 250);
    assert_eq!(server.log().len(), 3);
    // One of many pages is listed from several names on.
    let many = (0..3_000).map(|i| format!("Bild {i:05} ü.jpg")).collect::<Vec<_>>();
    many.iter().for_each(|name| server.put(&format!("many/{name}"), "x"));
    server.put("many/zzz/deep.jpg", "x");
    server.configure(|config| config.page_size = 30);
    server.forget();
    let found = names(&server.source("many")).await;
    assert!(found.iter().eq(many.iter().chain([&"zzz/deep.jpg".to_owned()])));
    let asked = server.log().into_iter().map(|seen| seen.query).collect::<Vec<_>>();
    assert!(asked.len() < 160, "{} requests", asked.len());
    assert!(asked.iter().filter(|query| query.iter().any(|(name, _)| name == "start-after")).count() > 10);
}

#[tokio::test]
async fn odd_keys_are_listed_and_read_back() {
    let server = S3Server::start();
    let odd =
        ["a b/ä ö.jpg", "a%20b/c%.jpg", "plus+and&/x=1?.jpg", "q'\"<>/~!@$()*,;:.jpg", "日本/猫.jpg", "#hash/#.jpg"];
    for key in odd {
        server.put(&format!("set/{key}"), key.as_bytes().to_vec());
    }
    let source = server.source("set");
    let mut expected = odd.to_vec();
    expected.sort_unstable();
    assert_eq!(names(&source).await, expected);
    for key in odd {
        assert_eq!(source.read(key, 0..key.len() as u64).await.unwrap(), key);
    }
}

#[tokio::test]
async fn a_single_object_and_an_empty_prefix() {
    let server = S3Server::start();
    server.put("photos/1.jpg", jpeg(1, 24, 32));
    server.put("photos/2.jpg", jpeg(2, 24, 32));
    assert_eq!(open_source(server.source("photos/1.jpg")).await.unwrap().len(), 1);
    assert_eq!(open_source(server.source("")).await.unwrap().len(), 2);
    assert_eq!(open_source(server.source("photos/")).await.unwrap().len(), 2);
    let error = open_source(server.source("nothing/here")).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("there are no files"), "{error}");
}

#[tokio::test]
async fn a_large_bucket_is_listed_once_and_compared_later() {
    let server = S3Server::start();
    for i in 0..30_000 {
        server.put(&format!("set/{:03}/{i:05}.jpg", i % 40), "x");
    }
    let dir = tempfile::tempdir().unwrap();
    let open = async |prefix: &str| {
        server.forget();
        let dataset = open_source(server.source(prefix)).manifests(dir.path()).await.unwrap();
        (dataset.len(), dataset.fingerprint(), server.log().len())
    };
    let kept = || fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).next();
    let (count, print, requests) = open("set").await;
    assert_eq!(count, 30_000);
    assert!(requests >= 30, "{requests}");
    let file = kept().expect("a manifest");
    let (again, same, requests) = open("set").await;
    assert_eq!((again, same), (count, print));
    assert_eq!(requests, 16);
    // Damaged: listed again, and right again.
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    assert_eq!(open("set").await.1, print);
    assert_eq!(open("set").await.2, 16);
    // Another object, at the end; one less, at the beginning; all changed.
    server.put("set/039/99999.jpg", "new");
    assert_eq!(open("set").await.0, 30_001);
    server.delete("set/000/00000.jpg");
    assert_eq!(open("set").await.0, 30_000);
    for i in 0..30_000 {
        server.put(&format!("set/{:03}/{i:05}.jpg", i % 40), "yy");
    }
    assert_eq!(open("set").await.0, 30_001);
    assert_eq!(open("set").await.2, 16);
    // A small one is not worth a manifest, and has none.
    fs::remove_file(&file).unwrap();
    assert_eq!(open("set/007").await.0, 750);
    assert_eq!(kept(), None);
}

#[tokio::test]
async fn a_job_lists_once_and_all_its_ranks_see_the_same() {
    let server = S3Server::start();
    for i in 0..5_000 {
        server.put(&format!("set/{:03}/{i:05}.jpg", i % 10), "x");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lists/one");
    let manifests = dir.path().join("manifests");
    let open = |file: &std::path::Path, rank: u32| {
        let open = open_source(server.source("set")).manifests(&manifests).listing(file.display().to_string(), rank);
        open.into_future()
    };
    // The others come first, look for the file and wait.
    let mut others = Box::pin(futures::future::try_join_all((1..4).map(|rank| open(&file, rank))));
    assert!(futures::poll!(&mut others).is_pending());
    let first = open(&file, 0).await.unwrap();
    let listed = server.log().iter().filter(|seen| seen.key.is_none()).count();
    assert!((5..=16).contains(&listed), "{listed} pages of 1000: nobody lists but rank 0");
    server.forget();
    for other in others.await.unwrap() {
        assert_eq!((other.len(), other.fingerprint()), (5_000, first.fingerprint()));
    }
    let asked = server.log();
    assert!(asked.iter().all(|seen| seen.method == "HEAD"), "the others list nothing");
    assert_eq!(asked.len(), 3 * 2);
    // It stays as it is, whatever comes: a restart with another world sees the same.
    server.put("set/000/zzz.jpg", "new");
    let again = [open(&file, 0).await.unwrap(), open(&file, 5).await.unwrap()];
    assert!(again.iter().all(|again| again.fingerprint() == first.fingerprint()));
    let new = open(&dir.path().join("lists/two"), 0).await.unwrap();
    assert_eq!(new.len(), 5_001);
    // What it tells and is not so is an error.
    for i in 0..5_000 {
        server.put(&format!("set/{:03}/{i:05}.jpg", i % 10), "y");
    }
    let error = open(&file, 1).await.unwrap_err().to_string();
    assert!(error.contains("has changed") && error.contains("lists/one"), "{error}");
    for i in 0..5_000 {
        server.delete(&format!("set/{:03}/{i:05}.jpg", i % 10));
    }
    let error = open(&file, 0).await.unwrap_err().to_string();
    assert!(error.contains("is gone"), "{error}");
    // One of another place, a damaged one, a folder.
    let elsewhere = open_source(server.source("other")).listing(file.display().to_string(), 1).await.unwrap_err();
    assert!(elsewhere.to_string().contains("another place"), "{elsewhere}");
    fs::write(&file, "something else").unwrap();
    let error = open(&file, 0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(open(dir.path(), 0).await.unwrap_err().to_string().contains("folder"));
}

#[test]
fn a_local_folder_has_a_listing_too() {
    let dir = tempfile::tempdir().unwrap();
    let [data, file] = ["data", "listing"].map(|name| dir.path().join(name));
    fs::create_dir_all(data.join("a")).unwrap();
    for i in 0..20 {
        fs::write(data.join(format!("a/{i:02}.jpg")), jpeg(i, 24, 32)).unwrap();
    }
    let open = |rank| infeed::open(data.display().to_string()).listing(file.display().to_string(), rank).blocking();
    let first = open(0).unwrap();
    fs::write(data.join("a/99.jpg"), jpeg(99, 24, 32)).unwrap();
    assert_eq!((open(0).unwrap().len(), open(1).unwrap().fingerprint()), (20, first.fingerprint()));
    // Mounted elsewhere.
    let moved = dir.path().join("moved");
    fs::rename(&data, &moved).unwrap();
    let there = infeed::open(moved.display().to_string()).listing(file.display().to_string(), 3).blocking().unwrap();
    assert_eq!(there.len(), 20);
    for i in 0..20 {
        fs::write(moved.join(format!("a/{i:02}.jpg")), "short").unwrap();
    }
    let error =
        infeed::open(moved.display().to_string()).listing(file.display().to_string(), 0).blocking().unwrap_err();
    assert!(error.to_string().contains("has another size"), "{error}");
    let pattern = format!("{0}/a/{{00..03}}.jpg::{0}/a/{{04..07}}.jpg", moved.display());
    let many = infeed::open(pattern).listing(file.display().to_string(), 0).blocking();
    assert!(many.unwrap_err().to_string().contains("one folder"));
}

/// What opening says with these variables besides, or instead.
async fn refusal(server: &S3Server, url: &str, more: &[(&str, &str)]) -> Error {
    let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let source = Source::parse_with(url, server.env().into_iter().chain(more)).unwrap();
    open_source(source).await.map(|_| ()).unwrap_err()
}

fn says(error: &Error, kind: ErrorKind, words: &[&str]) {
    let text = format!("{error:#}");
    assert_eq!(error.kind(), kind, "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
    assert!(!text.contains(SECRET_KEY) && !text.contains("hush"), "{text}");
}

#[tokio::test]
async fn each_way_to_be_refused_has_its_own_words() {
    let server = S3Server::start();
    server.put("x/1.jpg", "x");
    let url = server.url("x");

    let error = refusal(&server, &url, &[("AWS_SECRET_ACCESS_KEY", "hush")]).await;
    says(&error, ErrorKind::Denied, &["secret access key is wrong", "environment", "SignatureDoesNotMatch"]);
    let error = refusal(&server, &url, &[("AWS_ACCESS_KEY_ID", "AKIAOTHER")]).await;
    says(&error, ErrorKind::Denied, &["does not know the access key"]);
    let error = refusal(&server, &url, &[("AWS_SESSION_TOKEN", "hush")]).await;
    says(&error, ErrorKind::Denied, &["session token", "AWS_SESSION_TOKEN"]);
    let error = refusal(&server, "s3://no-such-bucket/x", &[]).await;
    says(&error, ErrorKind::NotFound, &["there is no bucket `no-such-bucket`", server.endpoint()]);

    server.configure(|config| config.may_list = false);
    let error = refusal(&server, &url, &[]).await;
    says(&error, ErrorKind::Denied, &["listing", "s3:ListBucket"]);
    let source = server.source("x");
    let error = source.read("2.jpg", 0..1).await.unwrap_err();
    says(&error, ErrorKind::Denied, &["not allowed, or there is no such object", "s3:GetObject"]);
    server.configure(|config| config.may_list = true);
    let error = source.read("2.jpg", 0..1).await.unwrap_err();
    says(&error, ErrorKind::NotFound, &["no such object", "2.jpg"]);

    server.configure(|config| config.clock_ahead = 3600);
    let error = refusal(&server, &url, &[]).await;
    says(&error, ErrorKind::Denied, &["clock", "15 minutes", "GMT"]);
    server.configure(|config| config.clock_ahead = 0);

    server.configure(|config| config.requester_pays = true);
    let error = refusal(&server, &url, &[]).await;
    says(&error, ErrorKind::Denied, &["AWS_REQUEST_PAYER=requester"]);
    let vars = server.env().into_iter().chain([("AWS_REQUEST_PAYER".into(), "requester".into())]);
    let source = Source::parse_with(&url, vars).unwrap();
    assert_eq!(names(&source).await, ["1.jpg"]);
    assert!(source.connection().unwrap().requester_pays);
}

/// Keys and messages that read like other answers change nothing.
#[tokio::test]
async fn an_answer_is_known_by_its_status_and_code_and_not_by_its_words() {
    let server = S3Server::start();
    let odd = "status code: 503 <Code>SlowDown<|Code> redirect without LOCATION.jpg";
    server.put(&format!("x/{odd}"), "x");
    let source = server.source("x");
    source.connect().await.unwrap();
    server
        .configure(|config| (config.may_get, config.message) = (false, Some("Server returned 503, status code: 503 ")));
    server.forget();
    let error = source.read(odd, 0..1).await.unwrap_err();
    says(&error, ErrorKind::Denied, &["s3:GetObject", "the store answered 403 AccessDenied"]);
    assert_eq!(server.log().len(), 1, "no further request mends it");
    let text = format!("{error:#}");
    assert_eq!(text.matches("AccessDenied").count(), 1, "one cause is told once: {text}");
    server.configure(|config| (config.may_get, config.message) = (true, Some("AccessDenied, ExpiredToken, nicht da")));
    for (status, code) in [(503, "Besetzt"), (429, "TooMany"), (500, "InternalError"), (400, "SlowDown")] {
        server.forget();
        server.fault(Fault::Status { status, code, retry_after: None });
        assert_eq!(source.read(odd, 0..1).await.unwrap(), "x");
        assert_eq!(server.log().len(), 2, "{status} {code}");
    }
}

#[tokio::test]
async fn an_endpoint_that_does_not_encrypt_is_told_from_one_that_is_not_there() {
    let server = S3Server::start();
    let encrypted = server.endpoint().replace("http://", "https://");
    let error = refusal(&server, &server.url("x"), &[("AWS_ENDPOINT_URL", &encrypted)]).await;
    says(&error, ErrorKind::Io, &["cannot be reached", &encrypted, "AWS_CA_BUNDLE", "write http://"]);
}

/// Requests beside each other that are refused in different ways.
#[tokio::test]
async fn each_of_many_requests_has_its_own_answer() {
    let server = S3Server::start();
    for i in 10..60 {
        server.put(&format!("x/{i}"), "x");
        let (status, code) =
            [(403, "AccessDenied"), (404, "NoSuchKey"), (400, "Odd"), (403, "InvalidAccessKeyId")][i % 4];
        server.rule(Rule::new(Fault::Status { status, code, retry_after: None }).key(&format!("x/{i}")));
    }
    let source = server.source("x");
    let names: Vec<String> = (10..60).map(|i| i.to_string()).collect();
    let errors = futures::future::join_all(names.iter().map(|name| source.read(name, 0..1))).await;
    for (i, error) in (10..60).zip(errors) {
        let (kind, words) = [
            (ErrorKind::Denied, "403 AccessDenied"),
            (ErrorKind::NotFound, "404 NoSuchKey"),
            (ErrorKind::Unsupported, "400 Odd"),
            (ErrorKind::Denied, "403 InvalidAccessKeyId"),
        ][i % 4];
        says(&error.unwrap_err(), kind, &[words]);
    }
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_named() {
    let server = S3Server::start();
    // Nobody listens there, nor will.
    let endpoint = "http://127.0.0.1:1";
    let vars = server.env().into_iter().chain([("AWS_ENDPOINT_URL".into(), endpoint.into())]);
    let source = Source::parse_with(&server.url("x"), vars).unwrap().with_patience(Duration::ZERO);
    let error = open_source(source).await.map(|_| ()).unwrap_err();
    says(&error, ErrorKind::Io, &["cannot be reached", endpoint, "AWS_ENDPOINT_URL", "refused"]);
}

/// The clock jumps to the next timer, for nothing else can come.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_never_answered_is_given_up_sooner_than_one_that_did() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let start = tokio::time::Instant::now();
    let error = refusal(&S3Server::start(), "s3://bucket/x", &[("AWS_ENDPOINT_URL", &endpoint)]).await;
    says(&error, ErrorKind::Io, &["s3://bucket/x"]);
    // First contact and a request that began within it, of a patience of 60 s.
    assert!((10..=20).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

/// How long an outage may last is told on a virtual clock, in `crates/infeed-store/src/connect`.
#[tokio::test]
async fn an_outage_is_ridden_out_from_the_first_request_to_the_last() {
    let busy = Fault::Status { status: 500, code: "InternalError", retry_after: None };
    for fault in [Fault::slow_down(), busy, Fault::Reset] {
        let server = S3Server::with(Config { page_size: 10, ..Config::default() });
        (0..30).for_each(|n| server.put(&format!("x/{n:02}.jpg"), format!("{n}")));
        let source = server.source("x");
        let out = || server.rule(Rule::new(fault.clone()).everything().times(1));
        out();
        assert_eq!(names(&source).await.len(), 30, "{fault:?}");
        assert_eq!(server.log().iter().filter(|seen| seen.fault.is_some()).count(), 1, "it was out");
        out();
        assert_eq!(source.read("07.jpg", 0..1).await.unwrap(), "7", "{fault:?}");
        assert_eq!(server.log().iter().filter(|seen| seen.fault.is_some()).count(), 2, "it was out");
    }
}

#[tokio::test]
async fn a_listing_that_stays_out_is_an_error_when_the_patience_ends() {
    for fault in [Fault::slow_down(), Fault::Reset, Fault::StallBeforeHead(Duration::from_millis(100))] {
        let server = S3Server::start();
        server.put("x/1.jpg", "x");
        let patience = Duration::from_millis(300);
        let source = server.source("x").with_patience(patience);
        // Known to be there.
        assert_eq!(names(&source).await, ["1.jpg"]);
        server.forget();
        server.rule(Rule::new(fault.clone()).listings());
        let started = Instant::now();
        let error = open_source(source).await.map(|_| ()).unwrap_err();
        says(&error, ErrorKind::Io, &["cannot be listed", "s3://infeed-test/x"]);
        assert!(started.elapsed() >= patience, "{fault:?}: {:?}", started.elapsed());
        // Pauses are of 50, 100 and 200 ms at least: after the third nobody asks again.
        let asked = server.log().iter().filter(|seen| seen.fault.is_some()).count();
        assert!(asked <= 4, "{fault:?}: {asked} requests");
    }
}

#[tokio::test]
async fn a_bucket_in_another_region_is_read_there_and_one_that_moves_is_an_error() {
    for redirect in [false, true] {
        let server = S3Server::with(Config { redirect_wrong_region: redirect, ..Config::default() });
        server.put("x/1.jpg", "x");
        for region in ["", "us-west-2"] {
            let vars = server.env().into_iter().chain([("AWS_REGION".into(), region.into())]);
            let source = Source::parse_with(&server.url("x"), vars).unwrap();
            assert_eq!(names(&source).await, ["1.jpg"]);
            assert_eq!(source.connection().unwrap().region, "eu-test-1");
            // Known from now on.
            server.forget();
            source.read("1.jpg", 0..1).await.unwrap();
            assert_eq!(server.log().len(), 1);
        }
        let source = server.source("x");
        source.connect().await.unwrap();
        let moved = if redirect { 301 } else { 400 };
        let code = if redirect { "PermanentRedirect" } else { "AuthorizationHeaderMalformed" };
        server.configure(|config| config.region = "ap-test-7".into());
        server.rule(Rule::new(Fault::Status { status: moved, code, retry_after: None }).one_in(2).everything());
        let error = source.read("1.jpg", 0..1).await.unwrap_err();
        says(&error, if redirect { ErrorKind::Config } else { ErrorKind::Unsupported }, &[]);
    }
}

#[tokio::test]
async fn an_expired_token_is_asked_for_once_more() {
    let server = S3Server::start();
    server.put("x/1.jpg", "x");
    server.configure(|config| {
        config.expired_token = Some("old-hush".into());
        config.session_token = Some("new-hush".into());
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    let keys = |token: &str| {
        let text = format!(
            "[job]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\naws_session_token = {token}\n"
        );
        fs::write(&file, text).unwrap();
    };
    keys("old-hush");
    let vars = || {
        let keep = server.env().into_iter().filter(|(name, _)| !name.contains("KEY") && !name.contains("TOKEN"));
        let file = file.display().to_string();
        keep.chain([("AWS_SHARED_CREDENTIALS_FILE".into(), file), ("AWS_PROFILE".into(), "job".into())])
    };
    let source = Source::parse_with(&server.url("x"), vars()).unwrap();
    source.connect().await.unwrap();
    let error = source.read("1.jpg", 0..1).await.unwrap_err();
    says(&error, ErrorKind::Denied, &["session token has expired", "profile `job`"]);
    assert_eq!(server.log().len(), 2, "once more, and no more");
    // Whoever issues tokens has written a new one meanwhile.
    keys("new-hush");
    assert_eq!(source.read("1.jpg", 0..1).await.unwrap(), "x");
    assert_eq!(names(&source).await, ["1.jpg"]);
}

/// Also where a machine is on a network that drops what goes to the metadata address.
#[tokio::test(start_paused = true)]
async fn looking_for_credentials_is_bounded() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("http://{}", silent.local_addr().unwrap());
    let source = Source::parse_with("s3://bucket/x", [("AWS_METADATA_ENDPOINT", at)]).unwrap();
    // The clock jumps to the next timer, for nothing else can come.
    let start = tokio::time::Instant::now();
    let error = source.connect().await.unwrap_err();
    says(&error, ErrorKind::Denied, &["credentials", "AWS_PROFILE"]);
    // A timer's millisecond above the bound.
    assert!(start.elapsed() <= Duration::from_millis(10_001), "{:?}", start.elapsed());
}
