//! The command line on buckets, on the Hugging Face hub and on web servers: the samples are those of the folder, what comes is
//! what was stored, and no output tells a secret.

use std::{
    collections::HashMap,
    fs,
    io::Write,
    path::Path,
    process::{Output, Stdio},
    sync::OnceLock,
    time::Instant,
};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    command,
    support::{
        files_below,
        hub::{HubServer, TOKEN, url},
        noise,
        photos::{COUNT as PHOTOS, photos},
        s3::{ACCESS_KEY, Config, Fault, Rule, S3Server, SECRET_KEY, Tags},
        until,
        web::{Answer, Web, decoded},
    },
};

fn infeed(args: &[&str], env: impl IntoIterator<Item = (String, String)>) -> Output {
    command::infeed().envs(env).args(args).output().expect("the binary starts")
}

fn said(output: &Output) -> String {
    format!("{}\n{}", command::text(&output.stdout), command::text(&output.stderr))
}

/// Of a command that ends well.
fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{}", said(output));
    serde_json::from_slice(&output.stdout).expect("stdout is JSON")
}

fn checksum(output: &Output) -> String {
    report(output)["checksum"].as_str().expect("a checksum").to_owned()
}

fn run(url: &str, env: Vec<(String, String)>, more: &[&str]) -> Output {
    infeed(&[&["run", url, "--batch-size", "6", "--checksum", "--json", "-"], more].concat(), env)
}

const TWO_EPOCHS: [&str; 4] = ["--shuffle", "7", "--epochs", "2"];

fn server(change: impl FnOnce(&mut Config)) -> S3Server {
    let server = S3Server::start();
    server.configure(change);
    server.put_folder(photos(), "photos");
    server
}

fn local() -> String {
    static SUM: OnceLock<String> = OnceLock::new();
    SUM.get_or_init(|| checksum(&run(photos(), Vec::new(), &[]))).clone()
}

#[test]
fn a_run_from_a_bucket_equals_a_local_one() {
    let server = server(|_| {});
    let local = checksum(&run(photos(), Vec::new(), &TWO_EPOCHS));
    assert_eq!(checksum(&run(&server.url("photos"), server.env(), &TWO_EPOCHS)), local);
    assert!(server.asked_once(2 * PHOTOS), "{} requests for {} samples", server.gets(), 2 * PHOTOS);
}

#[test]
fn a_listing_in_the_bucket_serves_processes_that_start_together() {
    let server = server(|_| {});
    let run = |rank: &str| {
        let mut command = command::infeed();
        command.envs(server.env()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.args(["run", &server.url("photos"), "--listing", &server.url("jobs/7.listing"), "--json", "-"]);
        command.args(["--device", "cpu", "--batch-size", "1", "--checksum", "--rank", rank, "--world-size", "2"]);
        command.spawn().unwrap()
    };
    let ranks = [run("1"), run("0")];
    for rank in ranks {
        let done = rank.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", said(&done));
    }
    assert_eq!(server.writes(), ["jobs/7.listing"]);
    let listed = server.log().iter().filter(|seen| seen.key.is_none() && seen.method == "GET").count();
    let alone = {
        server.forget();
        assert!(run("0").wait_with_output().unwrap().status.success());
        server.log().iter().filter(|seen| seen.key.is_none() && seen.method == "GET").count()
    };
    assert!(listed > 0 && alone == 0, "{listed} requests listed, then {alone}");
}

#[test]
fn inspect_tells_how_the_bucket_was_reached() {
    let server = server(|_| {});
    let url = server.url("photos");
    let table = infeed(&["inspect", &url], server.env());
    for part in [server.endpoint(), "eu-test-1", "environment (AWS_ACCESS_KEY_ID)"] {
        assert!(said(&table).contains(part), "{}", said(&table));
    }
    let findings = report(&infeed(&["inspect", &url, "--json", "-"], server.env()));
    assert_eq!(findings["connection"]["region"], "eu-test-1");
    assert_eq!(findings["connection"]["path_style"], true);
}

#[test]
fn no_output_holds_a_secret() {
    let token = "FwoGZXIvYXdzEHushHushHush";
    let server = server(|config| config.session_token = Some(token.into()));
    let trace = || server.env().into_iter().chain([("INFEED_LOG".into(), "trace".into())]);
    let secrets = [SECRET_KEY, token, ACCESS_KEY, "Credential=", "Signature="];
    // One that works, and one that is answered with all that was signed.
    let good = infeed(&["run", &server.url("photos"), "--batch-size", "2"], trace());
    assert!(good.status.success(), "{}", said(&good));
    server.configure(|config| config.secret_key = "another".into());
    let bad = trace().map(|(name, value)| match name.as_str() {
        "AWS_SECRET_ACCESS_KEY" => (name, SECRET_KEY.to_owned()),
        _ => (name, value),
    });
    let bad = infeed(&["run", &server.url("photos"), "--batch-size", "2"], bad);
    assert!(!bad.status.success() && said(&bad).contains("SignatureDoesNotMatch"), "{}", said(&bad));
    for output in [good, bad] {
        let text = said(&output);
        assert!(text.contains("TRACE"), "trace is on");
        for secret in secrets {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

/// A dataset prepared into a bucket, in parts that are uploaded while more are made; and read from there.
#[test]
fn shards_are_prepared_into_a_bucket_and_read_from_it() {
    let server = S3Server::start();
    let local = tempfile::tempdir().expect("a folder");
    let prepare = |to: &str, workers: &str, env: Vec<(String, String)>| {
        // About 17 MB in each of two shards.
        let output = infeed(
            &["prepare", photos(), to, "--raw", "--resize", "700x1024", "--parts", "2", "--workers", workers],
            env,
        );
        assert!(output.status.success(), "{}", said(&output));
    };
    let folder = local.path().join("shards").display().to_string();
    prepare(&folder, "2", Vec::new());
    prepare(&server.url("out/shards"), "1", server.env());
    let files = files_below(Path::new(&folder));
    assert_eq!(files.len(), 5);
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let stored = server.get(&format!("out/shards/{name}"));
        assert!(stored.as_deref() == Some(&fs::read(&file).unwrap()[..]), "{name} differs");
    }
    let remote = checksum(&run(&server.url("out/shards"), server.env(), &TWO_EPOCHS));
    assert_eq!(remote, checksum(&run(&folder, Vec::new(), &TWO_EPOCHS)));
    let named = format!("{}/shard-{{000000..000001}}.tar", server.url("out/shards"));
    assert_eq!(checksum(&run(&named, server.env(), &TWO_EPOCHS)), remote);
    // It is not made again; its index is read, no header.
    server.forget();
    prepare(&server.url("out/shards"), "2", server.env());
    assert_eq!(server.writes(), ["out/shards/shards.infeed"]);
}

#[test]
fn an_index_is_written_beside_tars_and_spares_others_their_headers() {
    let server = server(|_| {});
    let url = server.url("photos");
    let shards = server.url("tars");
    let prepare = infeed(&["prepare", &url, &shards, "--parts", "3", "--json", "-"], server.env());
    assert!(prepare.status.success(), "{}", said(&prepare));
    // As another program leaves them.
    server.writes().iter().filter(|name| name.ends_with(".infeed")).for_each(|name| server.delete(name));
    let want = checksum(&run(&shards, server.env(), &TWO_EPOCHS));
    server.forget();
    let written = report(&infeed(&["index", &shards, "--json", "-"], server.env()));
    assert_eq!(server.writes(), ["tars/shards.infeed"]);
    assert_eq!((&written["shards"], &written["records"]), (&json!(3), &json!(PHOTOS)));
    assert_eq!(written["bytes"], json!(server.get("tars/shards.infeed").unwrap().len()));
    assert!(written["file"].as_str().unwrap().ends_with("tars/shards.infeed"), "{written}");
    assert_eq!(checksum(&run(&shards, server.env(), &TWO_EPOCHS)), want);
    let none = infeed(&["index", &url], server.env());
    assert_eq!(none.status.code(), Some(1), "{}", said(&none));
    assert!(said(&none).contains("tar shards"), "{}", said(&none));
}

#[test]
fn the_second_run_over_a_bucket_asks_it_for_no_image() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(|_| {});
    let cache = format!("{}:64MiB", dir.path().display());
    let run = |url: &str, more: &[&str]| report(&run(url, server.env(), &[&TWO_EPOCHS[..], more].concat()));
    let local = run(photos(), &[]);
    let url = server.url("photos");
    let first = run(&url, &["--cache", &cache]);
    // What a run that ends has not written yet, another one writes.
    until("the cache is not filled", || {
        server.forget();
        run(&url, &["--cache", &cache]);
        server.gets() == 0
    });
    server.forget();
    let second = run(&url, &["--cache", &cache]);
    assert_eq!(server.gets(), 0, "{:?}", server.log());
    for report in [&first, &second] {
        assert_eq!(report["checksum"], local["checksum"]);
    }
    assert_eq!([&first, &second].map(|report| report["cache"]["hits"].as_u64()), [Some(24), Some(48)]);
    assert_eq!(second["bytes_read"], 0);
    assert_eq!(local["cache"], Value::Null);
}

#[test]
fn a_run_from_the_hub_equals_a_local_one_and_inspect_tells_the_commit() {
    let server = HubServer::start();
    let commit = server.commit_folder(photos());
    assert_eq!(checksum(&run(&url(""), server.env(None), &[])), local());
    let output = infeed(&["inspect", &url(""), "--json", "-"], server.env(Some(TOKEN)));
    assert!(output.status.success() && !said(&output).contains(TOKEN), "{}", said(&output));
    assert!(said(&output).contains(&commit), "{}", said(&output));
}

#[test]
fn a_dataset_of_the_hub_is_named_in_full() {
    let error = infeed(&["run", "hf://lab/photos"], HubServer::start().env(None));
    assert!(!error.status.success() && said(&error).contains("hf://datasets/OWNER/NAME"), "{}", said(&error));
}

#[test]
fn shards_at_a_web_server_are_named_by_a_pattern() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    command::ok(&["prepare", photos(), folder, "--parts", "3"]);
    let bytes = |file: &Path| Bytes::from(fs::read(file).unwrap());
    let name = |file: &Path| format!("/{}", file.file_name().unwrap().to_str().unwrap());
    let files: HashMap<String, Bytes> = files_below(dir.path()).iter().map(|file| (name(file), bytes(file))).collect();
    let server = Web::start(move |request| match files.get(&decoded(&request.path)) {
        Some(file) => Answer::file(request, file),
        None => Answer::new(404, "no such file"),
    });
    let remote = run(&format!("{}/shard-{{000000..000002}}.tar", server.endpoint()), Vec::new(), &[]);
    assert_eq!(checksum(&remote), checksum(&run(folder, Vec::new(), &[])));
}

/// Stores that tell checksums only, and MD5s only.
fn tellers() -> [(&'static str, S3Server); 2] {
    [("CRC-32C", server(|config| (config.checksums, config.tags) = (true, Tags::Parts))), ("MD5", server(|_| {}))]
}

#[test]
fn a_flipped_bit_is_asked_for_again() {
    for (how, server) in tellers() {
        // The second read, for the first may be the one that tells what ETags are.
        server.rule(Rule::new(Fault::FlippedBit).one_in(2).times(1));
        let output = run(&server.url("photos"), server.env(), &["--verify", "auto"]);
        assert_eq!(checksum(&output), local(), "{how}");
        assert!(server.asked_once(PHOTOS + 1), "{how}: {} requests", server.gets());
    }
}

#[test]
fn a_flipped_bit_in_every_answer_is_an_error_with_both_hashes() {
    for (how, server) in tellers() {
        server.rule(Rule::new(Fault::FlippedBit).key("_18.JPEG"));
        let output = run(&server.url("photos"), server.env(), &["--verify", "auto"]);
        let words = said(&output);
        assert_eq!(output.status.code(), Some(1), "{how}: {words}");
        for says in ["the received bytes differ from those stored", how, "the store reports", "photos/"] {
            assert!(words.contains(says), "{how}: {says:?} in {words}");
        }
        let skipped = run(&server.url("photos"), server.env(), &["--verify", "auto", "--on-bad-sample", "skip"]);
        assert!(skipped.status.success(), "{}", said(&skipped));
    }
}

#[test]
fn without_verification_a_flipped_bit_is_another_pixel() {
    let (_, server) = tellers().into_iter().next().unwrap();
    server.rule(Rule::new(Fault::FlippedBit));
    let output = run(&server.url("photos"), server.env(), &["--verify", "never"]);
    // Some bits are such that the decoder notices.
    assert!(!output.status.success() || checksum(&output) != local(), "else the other tests prove nothing");
}

#[test]
fn a_store_whose_tags_are_no_md5s_is_read_with_a_warning() {
    let server = server(|config| config.tags = Tags::Other);
    let output = run(&server.url("photos"), server.env(), &["--verify", "auto"]);
    assert_eq!(checksum(&output), local());
    let words = said(&output);
    assert_eq!(words.matches("no ETag of this store is an MD5").count(), 1, "{words}");
    // Of those that began before it was known: once more, and in two parts.
    assert!((PHOTOS + 16..=PHOTOS * 4).contains(&server.gets()), "{}", server.gets());
}

#[test]
fn what_is_sealed_with_a_key_of_its_own_has_another_tag_and_is_not_asked_for_twice() {
    let server = server(|config| (config.tags, config.encryption) = (Tags::Other, Some("aws:kms")));
    let output = run(&server.url("photos"), server.env(), &["--verify", "auto"]);
    assert_eq!(checksum(&output), local());
    assert!(server.asked_once(PHOTOS), "{} requests", server.gets());
    assert!(!said(&output).contains("MD5"), "{}", said(&output));
}

fn stage(server: &S3Server, prefix: &str, to: &Path) -> Value {
    let output = infeed(&["stage", &server.url(prefix), &to.display().to_string(), "--json", "-"], server.env());
    report(&output)
}

#[test]
fn a_staged_copy_is_compared_with_all_that_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for (how, server) in tellers() {
        server.put("photos/n/large.bin", noise(7, 20 << 20));
        server.rule(Rule::new(Fault::FlippedBit).one_in(5).times(6));
        let copy = dir.path().join(how);
        let report = stage(&server, "photos", &copy);
        let all = PHOTOS + 1;
        let (checksum, md5) = if how == "MD5" { (0, all) } else { (all, 0) };
        let told = json!({ "checksum": checksum, "md5": md5, "length_only": 0 });
        assert_eq!(report["verified"], told, "{how}");
        for entry in files_below(&copy) {
            let key = format!("photos/{}", entry.strip_prefix(&copy).unwrap().display());
            assert!(server.get(&key).unwrap() == fs::read(&entry).unwrap(), "{how}: {key}");
        }
    }
}

#[test]
fn a_staged_copy_says_what_nothing_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(|config| config.tags = Tags::Parts);
    let report = stage(&server, "photos", &dir.path().join("copy"));
    assert_eq!(report["verified"], json!({ "checksum": 0, "md5": 0, "length_only": PHOTOS }));
    let output = infeed(&["stage", photos(), &dir.path().join("local").display().to_string()], []);
    assert!(said(&output).contains("verified: 24 by length only"), "{}", said(&output));
}

#[test]
fn a_staged_archive_is_compared_as_a_whole() {
    let mut tar = tar::Builder::new(Vec::new());
    let bytes = noise(7, 20 << 20);
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_cksum();
    tar.append_data(&mut header, "a.bin", &bytes[..]).unwrap();
    let server = S3Server::start();
    server.put("x/all.tar", tar.into_inner().unwrap());
    server.rule(Rule::new(Fault::FlippedBit).one_in(2).times(1));
    let dir = tempfile::tempdir().unwrap();
    let report = stage(&server, "x/all.tar", &dir.path().join("copy"));
    assert_eq!(report["verified"], json!({ "checksum": 0, "md5": 1, "length_only": 0 }));
    assert!(fs::read(dir.path().join("copy/a.bin")).unwrap() == bytes);
    let failing = dir.path().join("failing").display().to_string();
    server.rule(Rule::new(Fault::FlippedBit));
    let output = infeed(&["stage", &server.url("x/all.tar"), &failing], server.env());
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("differ from those stored"), "{}", said(&output));
}

#[test]
fn what_flips_a_bit_of_every_answer_is_not_taken_for_a_store_of_other_tags() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(|_| {});
    server.rule(Rule::new(Fault::FlippedBit));
    let copy = dir.path().join("copy");
    let output = infeed(&["stage", &server.url("photos"), &copy.display().to_string()], server.env());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("differ from those stored"), "{}", said(&output));
    assert!(files_below(&copy).is_empty(), "nothing that is damaged has a name");
    let output = run(&server.url("photos"), server.env(), &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[test]
fn a_cache_is_filled_with_what_was_compared() {
    for (how, server) in tellers() {
        let dir = tempfile::tempdir().unwrap();
        let cache = format!("{}:100MB", dir.path().display());
        server.rule(Rule::new(Fault::FlippedBit).one_in(3).times(5));
        let options = ["--verify", "never", "--cache", &cache];
        let first = run(&server.url("photos"), server.env(), &options);
        assert_eq!(checksum(&first), local(), "{how}");
        server.forget();
        assert_eq!(checksum(&run(&server.url("photos"), server.env(), &options)), local(), "{how}");
        assert_eq!(server.gets(), 0);
    }
}

/// What verification costs, by the processor time of `infeed run`:
/// `cargo test --release -p infeed-cli --test cli -- --ignored --nocapture what_verification_costs`
#[test]
#[ignore = "a measurement that checks no promise: CONTRIBUTING, Measure, says how to run it"]
fn what_verification_costs() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("photos").display().to_string();
    command::ok(&["synth", "imagenet", &to, "--count", "600", "--classes", "4", "--seed", "5"]);
    for round in 0..3 {
        for (teller, checksums) in [("md5", false), ("crc32c", true)] {
            for how in ["auto", "checksums", "never"] {
                let server = S3Server::start();
                server.configure(|config| config.checksums = checksums);
                server.put_folder(&to, "photos");
                let url = server.url("photos");
                let before = children();
                let args = ["run", &url, "--batch-size", "64", "--epochs", "4", "--verify", how];
                let began = Instant::now();
                let output = infeed(&args, server.env());
                assert!(output.status.success(), "{}", said(&output));
                let (took, images) = (began.elapsed().as_secs_f64(), 2400.0);
                let cpu = children() - before;
                writeln!(
                    std::io::stderr(),
                    "{round} {teller} {how}: {took:.2} s, {:.0} us of CPU an image",
                    cpu / images * 1e6
                )
                .unwrap();
            }
        }
    }
}

/// Processor time of the children that ended, in seconds.
fn children() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // cutime and cstime, in ticks of 10 ms.
    (fields[13].parse::<f64>().unwrap() + fields[14].parse::<f64>().unwrap()) / 100.0
}
