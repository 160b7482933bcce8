//! A staged copy is whole, verified, and as good as the original.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    command::{assert_same, infeed, ok, run, text},
    support::{files_below, photos::photos, until},
};

/// Runs, expects success, gives the JSON.
fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(&[args, &["--json", "-"]].concat())).expect("stdout is one JSON document")
}

/// Runs, expects this exit code, gives stderr.
fn fails(code: i32, args: &[&str]) -> String {
    let output = run(args);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    said
}

fn target() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy").display().to_string();
    (dir, path)
}

/// Files below a folder that a dataset sees, with their bytes.
fn tree(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let one = |path: PathBuf| (path.strip_prefix(dir).unwrap().to_path_buf(), fs::read(&path).unwrap());
    files_below(dir).into_iter().map(one).collect()
}

fn same(a: impl AsRef<Path>, b: impl AsRef<Path>) {
    assert_same(&tree(a.as_ref()), &tree(b.as_ref()));
}

#[test]
fn a_copy_gives_the_same_samples_and_resumes_a_state_of_the_original() {
    let (dir, copy) = target();
    let report = json(&["stage", photos(), &copy]);
    assert_eq!((&report["copied_files"], &report["kept_files"]), (&24.into(), &0.into()));
    same(photos(), &copy);
    let options = ["--batch-size", "6", "--shuffle", "5", "--epochs", "2", "--checksum"];
    let [original, staged] = [photos(), &copy].map(|url| json(&[&["run", url][..], &options].concat()));
    assert_eq!(original["checksum"], staged["checksum"]);

    let state = dir.path().join("state.json").display().to_string();
    json(&[&["run", photos()][..], &options, &["--max-batches", "3", "--state", &state]].concat());
    let rest = json(&[&["run", &copy][..], &options, &["--resume", &state]].concat());
    assert_eq!(rest["checksum"], original["checksum"], "the parts add up to the whole");
}

#[test]
fn a_second_copy_copies_what_is_not_whole() {
    let (_dir, copy) = target();
    json(&["stage", photos(), &copy]);
    let again = json(&["stage", photos(), &copy]);
    assert_eq!(
        (&again["copied_files"], &again["copied_bytes"], &again["kept_files"]),
        (&0.into(), &0.into(), &24.into())
    );
    let files = tree(Path::new(&copy));
    let path = |i: usize| Path::new(&copy).join(&files[i].0);
    // Of the same length: only the hash tells.
    fs::write(path(3), files[3].1.iter().map(|byte| byte ^ 1).collect::<Vec<_>>()).unwrap();
    fs::write(path(5), &files[5].1[1..]).unwrap();
    fs::remove_file(path(7)).unwrap();
    let report = json(&["stage", photos(), &copy]);
    assert_eq!((&report["copied_files"], &report["kept_files"]), (&3.into(), &21.into()));
    same(photos(), &copy);
}

/// Writes other bytes to a file, as many as before, a second later by its time.
fn rewrite(path: &Path) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    let bytes: Vec<u8> = fs::read(path).unwrap().iter().map(|byte| byte ^ 1).collect();
    fs::write(path, bytes).unwrap();
    File::options().append(true).open(path).unwrap().set_modified(before + Duration::from_secs(1)).unwrap();
}

#[test]
fn files_that_were_rewritten_in_their_place_are_copied_again() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    json(&["stage", photos(), &at("original")]);
    // The copy of a copy is that of any folder: the manifest of the first is hidden.
    json(&["stage", &at("original"), &at("copy")]);
    let files = files_below(Path::new(&at("original")));
    for file in [&files[2], &files[9], &files[23]] {
        rewrite(file);
    }
    // As a copy that was broken off.
    let name = files[5].strip_prefix(at("original")).unwrap();
    fs::remove_file(Path::new(&at("copy")).join(name)).unwrap();
    let report = json(&["stage", &at("original"), &at("copy")]);
    assert_eq!((&report["copied_files"], &report["kept_files"]), (&4.into(), &20.into()));
    same(at("original"), at("copy"));
    assert_eq!(json(&["stage", &at("original"), &at("copy")])["kept_files"], 24);

    // An archive, as long as before.
    fs::write(at("set.tar"), tar_of(photos(), "./")).unwrap();
    json(&["stage", &at("set.tar"), &at("unpacked")]);
    let len = fs::metadata(at("set.tar")).unwrap().len();
    fs::write(at("set.tar"), tar_of(&at("original"), "./")).unwrap();
    assert_eq!(fs::metadata(at("set.tar")).unwrap().len(), len);
    let later = fs::metadata(at("set.tar")).unwrap().modified().unwrap() + Duration::from_secs(1);
    File::options().append(true).open(at("set.tar")).unwrap().set_modified(later).unwrap();
    json(&["stage", &at("set.tar"), &at("unpacked")]);
    same(at("original"), at("unpacked"));
}

#[test]
fn what_fails_leaves_no_half_files() {
    let (_dir, copy) = target();
    json(&["stage", photos(), &copy]);
    // Where a file belongs lies a folder.
    let there = files_below(Path::new(&copy)).remove(4);
    fs::remove_file(&there).unwrap();
    fs::create_dir_all(there.join("full")).unwrap();
    let error = fails(1, &["stage", photos(), &copy]);
    assert!(error.contains(there.file_name().unwrap().to_str().unwrap()), "{error}");
    let own = fs::read_dir(Path::new(&copy).join(".infeed-stage")).unwrap().flatten();
    let left: Vec<_> = own.map(|entry| entry.path()).filter(|path| path.extension().is_some()).collect();
    assert_eq!(left, [Path::new(&copy).join(".infeed-stage/manifest.jsonl")]);
}

#[test]
fn a_copy_that_was_killed_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let original = dir.path().join("many");
    fs::create_dir(&original).unwrap();
    for i in 0..40_u32 {
        let bytes: Vec<u8> = (0..300_000_u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) ^ i).to_le_bytes()).collect();
        fs::write(original.join(format!("{i}.bin")), bytes).unwrap();
    }
    let (original, copy) = (original.display().to_string(), dir.path().join("copy").display().to_string());
    let mut killed = infeed().args(["stage", &original, &copy, "--jobs", "2"]).stderr(Stdio::null()).spawn().unwrap();
    until("nothing is copied", || fs::read_dir(&copy).map_or(0, Iterator::count) >= 5);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let report = json(&["stage", &original, &copy]);
    assert_eq!(report["files"], 40);
    // The line of a file follows its bytes, so what was killed between them is copied once more.
    assert!(report["kept_files"].as_u64().unwrap() >= 1, "{report}");
    same(&original, &copy);
    let left: Vec<_> = fs::read_dir(Path::new(&copy).join(".infeed-stage")).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "a lock and a manifest: {left:?}");
}

#[test]
fn limits_and_room_are_told_before_anything_is_copied() {
    let (dir, copy) = target();
    let error = fails(1, &["stage", photos(), &copy, "--limit", "100KiB"]);
    assert!(error.contains("--limit is 100.0 KiB") && error.contains("too much"), "{error}");
    assert_eq!(tree(Path::new(&copy)), []);
    // 16 files of 4 TiB each, that take no room here.
    let huge = dir.path().join("huge");
    fs::create_dir(&huge).unwrap();
    for i in 0..16 {
        let file = File::create(huge.join(format!("{i}.bin"))).unwrap();
        if file.set_len(4 << 40).is_err() {
            return crate::support::skipped("this file system has no files of 4 TiB");
        }
    }
    let (huge, copy) = (huge.display().to_string(), dir.path().join("no").display().to_string());
    let error = fails(1, &["stage", &huge, &copy]);
    assert!(error.contains("the copy needs 64.0 TiB") && error.contains("too little"), "{error}");
    assert_eq!(tree(Path::new(&copy)), []);
}

#[test]
fn folders_of_others_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.txt"), "mine").unwrap();
    let error = fails(1, &["stage", photos(), dir.path().to_str().unwrap()]);
    assert!(error.contains("not empty"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    let (_dir, copy) = target();
    json(&["stage", photos(), &copy]);
    let error = fails(1, &["stage", &format!("{}/n00000000", photos()), &copy]);
    assert!(error.contains("no such file") || error.contains("holds a copy of"), "{error}");
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("a.bin"), "a").unwrap();
    let error = fails(1, &["stage", other.path().to_str().unwrap(), &copy]);
    assert!(error.contains("holds a copy of"), "{error}");
}

#[test]
fn wrong_usage_is_exit_2() {
    let (_dir, copy) = target();
    for args in [
        &["stage"][..],
        &["stage", "a"],
        &["stage", photos(), &copy, "--limit", "0B"],
        &["stage", photos(), &copy, "--limit", "12"],
        &["stage", photos(), &copy, "--jobs", "0"],
        &["stage", "ftp://x/y", &copy],
        &["run", photos(), "--cache", "here"],
        &["run", photos(), "--cache", "here:0B"],
        &["run", photos(), "--cache", "ram:many"],
        &["run", photos(), "--cache", ":1GB"],
    ] {
        fails(2, args);
    }
    fails(1, &["stage", "/no/such/folder", &copy]);
    assert!(!Path::new(&copy).exists());
}

// Archives.

/// The photographs as a tar.
fn tar_of(dir: &str, top: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in tree(Path::new(dir)) {
        add(&mut tar, &format!("{top}{}", name.display()), &bytes);
    }
    tar.into_inner().unwrap()
}

fn add(tar: &mut tar::Builder<Vec<u8>>, name: &str, bytes: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    // As it stands: the crate refuses what an attacker would write.
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_cksum();
    tar.append(&header, bytes).unwrap();
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

#[test]
fn an_archive_is_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let tar = tar_of(photos(), "./");
    let zstd = ruzstd::encoding::compress_to_vec(&tar[..], ruzstd::encoding::CompressionLevel::Fastest);
    for (name, bytes) in
        [("set.tar", tar.clone()), ("set.tar.gz", gzip(&tar)), ("set.tgz", gzip(&tar)), ("set.tar.zst", zstd)]
    {
        let archive = dir.path().join(name);
        fs::write(&archive, bytes).unwrap();
        let (archive, copy) =
            (archive.display().to_string(), dir.path().join(format!("{name}-copy")).display().to_string());
        let report = json(&["stage", &archive, &copy]);
        assert_eq!((&report["files"], &report["unpacked"]), (&24.into(), &true.into()), "{name}");
        same(photos(), &copy);
        let again = json(&["stage", &archive, &copy]);
        assert_eq!((&again["copied_bytes"], &again["kept_files"]), (&0.into(), &24.into()), "{name}");
        assert!(!Path::new(&copy).join(".infeed-stage/archive").exists(), "{name}");
        // A file that was lost comes back.
        fs::remove_file(Path::new(&copy).join(&tree(Path::new(photos()))[2].0)).unwrap();
        json(&["stage", &archive, &copy]);
        same(photos(), &copy);
    }
}

#[test]
fn paths_that_lead_out_of_the_folder_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (i, name) in
        ["../escaped.jpg", "a/../../escaped.jpg", "/tmp/escaped.jpg", ".infeed-stage/manifest.jsonl"].iter().enumerate()
    {
        let mut tar = tar::Builder::new(Vec::new());
        add(&mut tar, name, b"out");
        let archive = dir.path().join(format!("{i}.tar"));
        fs::write(&archive, tar.into_inner().unwrap()).unwrap();
        let copy = dir.path().join(format!("deep/{i}"));
        let error = fails(1, &["stage", archive.to_str().unwrap(), copy.to_str().unwrap()]);
        assert!(error.contains("outside") && error.contains("refused"), "{name}: {error}");
        assert_eq!(tree(&copy), [], "{name}");
    }
    assert!(tree(dir.path()).iter().all(|(name, _)| name.extension().is_none_or(|e| e == "tar")));
}

/// A hard link, as an attacker might write it.
fn hard_link(tar: &mut tar::Builder<Vec<u8>>, name: &str, to: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Link);
    header.set_size(0);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.name[..name.len()].copy_from_slice(name.as_bytes());
    gnu.linkname[..to.len()].copy_from_slice(to.as_bytes());
    header.set_cksum();
    tar.append(&header, &[][..]).unwrap();
}

#[test]
fn hard_links_in_an_archive_have_their_files_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    add(&mut tar, "./set/a.jpg", b"first");
    hard_link(&mut tar, "set/deep/b.jpg", "./set/a.jpg");
    hard_link(&mut tar, "set/c.jpg", "set/deep/b.jpg");
    // To itself, and over one that is there: archives that were appended to have both.
    hard_link(&mut tar, "set/c.jpg", "set/c.jpg");
    hard_link(&mut tar, "set/c.jpg", "set/a.jpg");
    // What is written behind a link is not written into the file that it names.
    add(&mut tar, "set/d.jpg", b"second");
    add(&mut tar, "set/a.jpg", b"third");
    let archive = dir.path().join("set.tar");
    fs::write(&archive, tar.into_inner().unwrap()).unwrap();
    let copy = dir.path().join("copy");
    let args = ["stage", archive.to_str().unwrap(), copy.to_str().unwrap()];
    let want =
        [("set/a.jpg", &b"third"[..]), ("set/c.jpg", b"first"), ("set/d.jpg", b"second"), ("set/deep/b.jpg", b"first")];
    let want: Vec<(PathBuf, Vec<u8>)> = want.map(|(name, bytes)| (name.into(), bytes.to_vec())).into();
    let report = json(&args);
    assert_eq!(tree(&copy), want);
    assert_eq!(report["left_out"].as_u64().unwrap_or(0), 0, "{report}");
    let again = json(&args);
    assert_eq!((&again["copied_bytes"], &again["kept_files"]), (&0.into(), &4.into()));
    // One that was lost comes back, and the others stay as they were.
    fs::remove_file(copy.join("set/c.jpg")).unwrap();
    json(&args);
    assert_eq!(tree(&copy), want);
}

#[test]
fn hard_links_that_lead_out_or_to_nothing_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    fs::write(&secret, "not yours").unwrap();
    let own = dir.path().join("deep/3/there.jpg");
    fs::create_dir_all(own.parent().unwrap().join(".infeed-stage")).unwrap();
    fs::write(&own, "of somebody else").unwrap();
    let cases = [
        ("../../secret", "outside"),
        (secret.to_str().unwrap(), "outside"),
        ("later.jpg", "not a file before it"),
        // It lies in the folder, but the archive did not bring it.
        ("there.jpg", "not a file before it"),
        (".infeed-stage/manifest.jsonl", "outside"),
    ];
    for (i, (to, words)) in cases.into_iter().enumerate() {
        let mut tar = tar::Builder::new(Vec::new());
        hard_link(&mut tar, "x.jpg", to);
        add(&mut tar, "later.jpg", b"later");
        let archive = dir.path().join(format!("{i}.tar"));
        fs::write(&archive, tar.into_inner().unwrap()).unwrap();
        let copy = dir.path().join(format!("deep/{i}"));
        let error = fails(1, &["stage", archive.to_str().unwrap(), copy.to_str().unwrap()]);
        assert!(error.contains(words), "{to}: {error}");
        assert!(!copy.join("x.jpg").exists(), "{to}");
    }
}

#[test]
fn links_in_an_archive_are_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    tar.append_link(&mut header, "top/link", "/etc").unwrap();
    add(&mut tar, "top/link/passwd", b"not through the link");
    let archive = dir.path().join("set.tar");
    fs::write(&archive, tar.into_inner().unwrap()).unwrap();
    let copy = dir.path().join("copy");
    let output = run(&["stage", archive.to_str().unwrap(), copy.to_str().unwrap()]);
    let words = text(&output.stdout);
    assert!(output.status.success() && words.contains("1 links left out"), "{words}{}", text(&output.stderr));
    assert!(words.contains("copy/top"), "{words}");
    assert_eq!(fs::read(copy.join("top/link/passwd")).unwrap(), b"not through the link");
}

#[test]
fn damaged_archives_and_bombs_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let tar = tar_of(photos(), "");
    let packed = gzip(&tar);
    let zeros = {
        let mut tar = tar::Builder::new(Vec::new());
        add(&mut tar, "zeros.bin", &vec![0; 8 << 20]);
        gzip(&tar.into_inner().unwrap())
    };
    for (name, bytes, limit, word) in [
        ("cut.tar.gz", &packed[..packed.len() / 2], "1GiB", "cannot be unpacked"),
        ("cut.tar", &tar[..tar.len() / 2 + 100], "1GiB", "cannot be unpacked"),
        ("noise.tgz", &b"not an archive at all"[..], "1GiB", "cannot be unpacked"),
        ("bomb.tar.gz", &zeros[..], "1MiB", "take more than --limit"),
        ("empty.tar", &[0; 1024][..], "1GiB", "holds no files"),
    ] {
        let archive = dir.path().join(name);
        fs::write(&archive, bytes).unwrap();
        let copy = dir.path().join(format!("{name}-copy")).display().to_string();
        let error = fails(1, &["stage", archive.to_str().unwrap(), &copy, "--limit", limit]);
        assert!(error.contains(word), "{name}: {error}");
    }
    // What was copied of it stays, so that the right limit copies nothing again.
    let [archive, copy] = ["bomb.tar.gz", "bomb.tar.gz-copy"].map(|name| dir.path().join(name).display().to_string());
    let report = json(&["stage", &archive, &copy]);
    assert_eq!((&report["files"], &report["copied_bytes"]), (&1.into(), &0.into()));
}

#[test]
fn a_bucket_is_staged_with_one_request_for_each_file() {
    use crate::support::s3::S3Server;

    let (dir, copy) = target();
    let server = S3Server::start();
    server.put_folder(photos(), "photos");
    server.put("sets/set.tar", tar_of(photos(), ""));
    let json = |args: &[&str]| -> Value {
        let output = infeed().args(args).args(["--json", "-"]).envs(server.env()).output().expect("the binary starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("stdout is JSON")
    };
    let report = json(&["stage", &server.url("photos"), &copy]);
    assert_eq!(report["copied_files"], 24);
    assert!(server.asked_once(24), "{} requests", server.gets());
    same(photos(), &copy);
    server.forget();
    let again = json(&["stage", &server.url("photos"), &copy]);
    assert_eq!((&again["kept_files"], server.gets()), (&24.into(), 0), "the manifest names the versions");
    // Another version of one object, of the same length.
    let first = &tree(Path::new(photos()))[0];
    let changed: Vec<u8> = first.1.iter().map(|byte| byte ^ 1).collect();
    server.put(&format!("photos/{}", first.0.display()), changed.clone());
    json(&["stage", &server.url("photos"), &copy]);
    assert_eq!(fs::read(Path::new(&copy).join(&first.0)).unwrap(), changed);

    let unpacked = dir.path().join("unpacked").display().to_string();
    let report = json(&["stage", &server.url("sets/set.tar"), &unpacked]);
    assert_eq!(report["unpacked"], true);
    same(photos(), &unpacked);
}
