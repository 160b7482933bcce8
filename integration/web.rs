//! Shards at a web server that lists nothing: named by a pattern, equal to local ones; servers that know too little of HTTP
//! are told by what they lack.

use std::{collections::BTreeMap, future::IntoFuture, sync::Arc};

use bytes::Bytes;
use infeed::{
    Dataset, ErrorKind, Result, Transform,
    dataset::{Open, open, write_index},
    source::Source,
};

use crate::{
    shards::{pack, samples},
    support::{
        Plain, builder, drain, plain,
        web::{Answer, Web, decoded},
    },
};

/// What a server lacks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lacks {
    Nothing,
    Ranges,
    Lengths,
}

fn files() -> BTreeMap<String, Bytes> {
    let shard = |n: usize| (format!("train-{n:04}.tar"), Bytes::from(pack(&samples(n * 10, 10))));
    (0..12).map(shard).collect()
}

/// As nginx and the like serve a folder: no method but GET and HEAD.
fn server(files: BTreeMap<String, Bytes>, lacks: Lacks) -> Web {
    Web::start(move |request| {
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            return Answer::new(501, "Unsupported method");
        }
        let path = decoded(&request.path);
        if let Some(path) = path.strip_prefix("/moved/") {
            return Answer::new(302, "").with("location", format!("/data/{path}"));
        }
        let Some(file) = path.strip_prefix("/data/").and_then(|name| files.get(name)) else {
            return Answer::new(404, "no such file");
        };
        match lacks {
            Lacks::Nothing => Answer::file(request, file),
            Lacks::Ranges => Answer::new(200, file.clone()),
            Lacks::Lengths if request.method == "HEAD" => Answer::new(200, "").without_length(),
            Lacks::Lengths => Answer::file(request, file),
        }
    })
}

fn opened(open: Open) -> Result<Arc<dyn Dataset>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(open.into_future())
}

fn read(dataset: Arc<dyn Dataset>) -> Vec<Plain> {
    let transform = Transform::new().resize_exact(4, 4);
    let loader = builder(dataset).batch_size(7).transform(transform).build_blocking().unwrap();
    drain(loader.epoch(0)).unwrap().iter().map(plain).collect()
}

#[test]
fn outside_of_tokio_it_is_an_error_that_tells_the_ways_out() {
    let server = server(files(), Lacks::Nothing);
    let open = || open(format!("{}/data/train-0000.tar", server.endpoint()));
    let error = futures::executor::block_on(open().into_future()).unwrap_err();
    assert!(format!("{error:#}").contains("needs a tokio runtime"), "{error:#}");
    assert_eq!(open().blocking().unwrap().len(), 10);
}

#[test]
fn shards_by_a_pattern_equal_local_ones() {
    let (server, dir, cache) =
        (server(files(), Lacks::Nothing), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (name, bytes) in files() {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let local = |pattern: &str| opened(open(format!("{}/{pattern}", dir.path().display()))).unwrap();
    let remote = |url: &str| opened(open(url).manifests(cache.path())).unwrap();
    let at = server.endpoint();
    let all = remote(&format!("{at}/data/train-{{0000..0011}}.tar"));
    assert_eq!(all.fingerprint(), local("train-{0000..0011}.tar").fingerprint());
    let want = read(local("train-{0000..0011}.tar"));
    assert!(read(all) == want && want.len() == 17);
    let heads = server.log().iter().filter(|request| request.method == "HEAD").count();
    assert_eq!(heads, 12 + 3, "and what may tell of them");
    // Several, one, and where the server sends to.
    let both = remote(&format!("{at}/data/train-{{0003..0004}}.tar::{at}/moved/train-0001.tar"));
    let want = [local("train-{0003..0004}.tar"), local("train-0001.tar")].map(read);
    assert_eq!(both.len(), 30);
    assert!(read(remote(&format!("{at}/data/train-{{0003..0004}}.tar"))) == want[0]);
    assert!(read(remote(&format!("{at}/data/train-0001.tar"))) == want[1]);
    assert!(read(remote(&format!("{at}/moved/train-0001.tar"))) == want[1]);
}

/// The index of a folder, which `prepare` and `write_index` make, lies beside the shards.
#[test]
fn an_index_beside_them_is_read_in_place_of_the_shards() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files() {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let source = Source::parse(&dir.path().display().to_string()).unwrap();
    futures::executor::block_on(write_index(&source)).unwrap();
    let mut with = files();
    with.insert("shards.infeed".into(), std::fs::read(dir.path().join("shards.infeed")).unwrap().into());
    let (server, cache) = (server(with, Lacks::Nothing), tempfile::tempdir().unwrap());
    let url = format!("{}/data/train-{{0000..0011}}.tar", server.endpoint());
    assert_eq!(opened(open(url).manifests(cache.path())).unwrap().len(), 120);
    let read: Vec<_> = server.log().into_iter().filter(|request| request.method == "GET").map(|r| r.path).collect();
    assert!(read.iter().filter(|path| path.ends_with(".tar")).count() <= 2, "{read:?}");
}

#[test]
fn a_server_that_knows_too_little_is_told_by_what_it_lacks() {
    let one = |server: &Web| opened(open(format!("{}/data/train-{{0000..0003}}.tar", server.endpoint()))).unwrap_err();
    for (lacks, says) in [(Lacks::Ranges, "no parts of files"), (Lacks::Lengths, "Content-Length")] {
        let server = server(files(), lacks);
        let error = one(&server);
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains(says), "{lacks:?}: {error}");
        assert!(server.log().len() < 20, "asked once: {}", server.log().len());
    }
    let server = server(files(), Lacks::Nothing);
    let error = opened(open(format!("{}/data/train-{{0010..0013}}.tar", server.endpoint()))).unwrap_err();
    assert!(error.to_string().contains("2 of the 4 objects that are named do not exist"), "{error}");
    let error = opened(open(format!("{}/data/nothing.tar", server.endpoint()))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let error = opened(open(format!("{}/data/train-{{0000..0003}}.tar?token=secret", server.endpoint()))).unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
}

/// As pages of downloads and signatures have them.
#[test]
fn escapes_and_queries_of_urls_are_asked_for_as_they_are_given() {
    let shard = || Bytes::from(pack(&samples(0, 10)));
    let names = ["a b+c (1).tar", "100%.tar", "é.tar"];
    let files: BTreeMap<String, Bytes> = names.iter().map(|name| ((*name).to_owned(), shard())).collect();
    let open_server = server(files.clone(), Lacks::Nothing);
    let at = open_server.endpoint();
    for name in ["a%20b+c%20(1).tar", "a b+c (1).tar", "a%20b%2Bc%20%281%29.tar", "100%25.tar", "%C3%A9.tar", "é.tar"]
    {
        let dataset = opened(open(format!("{at}/data/{name}"))).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        assert_eq!(dataset.len(), 10, "{name}");
    }
    assert_eq!(opened(open(format!("{at}/data/{{a%20b+c%20(1),100%25}}.tar"))).unwrap().len(), 20);

    // An API that takes the object's name as one part of the path.
    let object = Bytes::from(pack(&samples(0, 10)));
    let api = Web::start(move |request| match (&*request.method, &*request.path) {
        ("GET" | "HEAD", "/v0/b/x/o/shards%2Fa%20b.tar") => Answer::file(request, &object),
        ("PROPFIND", _) => Answer::new(405, ""),
        _ => Answer::new(404, ""),
    });
    for escaped in ["shards%2Fa%20b.tar", "shards%2fa%20b.tar?alt=media"] {
        let dataset = opened(open(format!("{}/v0/b/x/o/{escaped}", api.endpoint()))).unwrap();
        assert_eq!((dataset.len(), read(dataset).len()), (10, 1), "{escaped}");
    }

    // Signed for GET alone, by its query.
    let signed = Web::start(move |request| match (&*request.method, request.parameter("sign")) {
        ("GET", Some("s3%2Fcret")) => match decoded(&request.path).strip_prefix("/moved/") {
            Some(_) => Answer::new(302, "").with("location", "/data/elsewhere.tar?sign=s3%2Fcret"),
            None => Answer::file(request, &files["é.tar"]),
        },
        _ => Answer::new(403, "<Error><Code>SignatureDoesNotMatch</Code></Error>"),
    });
    let at = signed.endpoint();
    for path in ["data/x%20y.tar", "moved/x.tar"] {
        let dataset = opened(open(format!("{at}/{path}?download=1&sign=s3%2Fcret"))).unwrap();
        assert_eq!((dataset.len(), read(dataset).len()), (10, 1));
    }
    assert!(signed.log().iter().all(|request| request.method == "GET"));
    for (url, kind) in [("x.tar?sign=wr0ng", ErrorKind::Denied), ("?sign=wr0ng", ErrorKind::Config)] {
        let error = opened(open(format!("{at}/{url}"))).unwrap_err();
        assert_eq!(error.kind(), kind, "{error:#}");
        assert!(!format!("{error:#} {error:?}").contains("wr0ng"), "{error:?}");
    }
}

/// Connections that wait in a pool belong to the runtime that made them, and hang when nobody drives it.
#[test]
fn a_runtime_that_nobody_drives_any_more_holds_up_nobody() {
    let server = server(files(), Lacks::Nothing);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("{}/data/train-{{0000..0011}}.tar", server.endpoint());
    let dataset = runtime.block_on(open(url).into_future()).unwrap();
    assert_eq!(read(dataset).len(), 17);
    drop(runtime);
}
