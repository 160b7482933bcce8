//! What a machine refuses is an error that says so: no abort, no panic, no hang.

use std::{fs, path::Path, process::Output};

use crate::{
    command::{BINARY, infeed, ok, program, text},
    support::{
        children::{end_of, piped, refuses_threads},
        skipped,
    },
};

#[test]
fn threads_that_cannot_be_had_are_an_error_and_never_a_hang() {
    let Some(library) = refuses_threads() else { return skipped("no C compiler for a system that refuses threads") };
    let dir = tempfile::tempdir().unwrap();
    let photos = dir.path().join("photos").display().to_string();
    ok(&["synth", "imagenet", &photos, "--count", "4"]);
    let again = dir.path().join("again").display().to_string();
    let sets = "synthetic://?count=64&height=8&width=8&classes=4";
    let commands: [&[&str]; 3] = [
        &["run", sets, "--batch-size", "8", "--workers", "3"],
        &["run", &photos, "--batch-size", "2"],
        &["synth", "imagenet", &again, "--count", "4"],
    ];
    for command in commands {
        let mut ended_well = false;
        for most in 0..14 {
            let what = format!("{command:?} with {most} threads");
            // Only `synth` writes there, and into nothing that holds something.
            let _ = fs::remove_dir_all(&again);
            let child = piped(infeed().args(command).env("LD_PRELOAD", library).env("MOST_THREADS", most.to_string()));
            let output = end_of(child, &what);
            let said = text(&output.stderr);
            assert!(!said.contains("panicked"), "{what}: {said}");
            match output.status.code() {
                Some(0) => ended_well = true,
                Some(1) => assert!(said.contains("error: ") && said.contains("thread"), "{what}: {said}"),
                other => panic!("{what}: {other:?}: {said}"),
            }
        }
        assert!(ended_well || command[0] == "synth", "{command:?}");
    }
}

#[test]
fn memory_that_cannot_be_had_is_an_error_and_no_abort() {
    // A batch of 1.6 GB is within the budget, not within what the system gives.
    let script = r#"ulimit -v 1600000; exec "$0" "$@""#;
    let sets = "synthetic://?count=2800&height=224&width=224&classes=4";
    let args = ["run", sets, "--transform", "none", "--batch-size", "2800", "--workers", "2", "--dtype", "f32"];
    let mut command = program("sh");
    command.args(["-c", script, BINARY]).args(args).args(["--memory-budget", "6GiB"]);
    let output = end_of(piped(&mut command), "a run without memory");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no memory for a buffer of") && !said.contains("panicked"), "{said}");
}

/// What is taken for a record may be a whole file.
#[test]
fn a_record_larger_than_memory_is_an_error_of_inspect_and_no_abort() {
    let dir = tempfile::tempdir().unwrap();
    for (name, header, bytes) in [
        ("big.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (100000000, 32, 32, 3), }", 307_200_000_000),
        ("small.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (1000,), }", 8000),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, [&b"\x93NUMPY\x01\x00\x76\x00"[..], format!("{header:<117}\n").as_bytes()].concat()).unwrap();
        fs::File::options().write(true).open(path).unwrap().set_len(128 + bytes).unwrap();
    }
    let mut command = program("sh");
    command.args(["-c", r#"ulimit -v 9000000; exec "$0" "$@""#, BINARY]).arg("inspect").arg(dir.path());
    let output = end_of(piped(&mut command), "a look at a record larger than memory");
    let (told, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(told.contains("records") && told.contains("small.npy"), "what there is is told all the same: {told}");
    assert!(said.contains("error: fetch: no memory to read 307200000128 bytes"), "{said}");
    assert!(said.contains("big.npy") && said.contains("; "), "{said}");
}

/// A limit of the size of files stands for a disk that fills up while a file is written. Without a handler, its signal
/// ends the process there, as `kill -9` does.
#[cfg(target_os = "linux")]
#[test]
fn an_index_that_cannot_be_written_whole_is_none() {
    // 20,000 samples have an index of some 130 KB; smaller ones are not kept.
    let dir = tempfile::tempdir().unwrap();
    let [tars, kept] = ["tars", "kept"].map(|name| dir.path().join(name));
    fs::create_dir(&tars).unwrap();
    let mut tar = tar::Builder::new(fs::File::create(tars.join("a.tar")).unwrap());
    for i in 0..20_400 {
        let mut header = tar::Header::new_ustar();
        header.set_size(1);
        tar.append_data(&mut header, format!("{i:06}.cls"), &b"7"[..]).unwrap();
    }
    tar.into_inner().unwrap();

    let limited = |script: &str, args: &[&str]| {
        let mut command = program("sh");
        command.args(["-c", script, BINARY]).args(args).arg(&tars).env("INFEED_MANIFEST_DIR", &kept);
        end_of(piped(&mut command), script)
    };
    let (full, killed) = (r#"trap "" XFSZ; ulimit -f 64; exec "$0" "$@""#, r#"ulimit -f 64; exec "$0" "$@""#);
    let indexes = |folder: &Path, ending: &str| -> Vec<Vec<u8>> {
        let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
        let files = files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == ending));
        files.map(|path| fs::read(path).unwrap()).collect()
    };
    let inspect = |script: &str| limited(script, &["inspect"]);
    let counted = |output: &Output| {
        assert!(text(&output.stdout).contains("20,400"), "{}{}", text(&output.stdout), text(&output.stderr));
    };

    // What an opening keeps elsewhere.
    let output = inspect(full);
    counted(&output);
    assert!(text(&output.stderr).contains("warning: nothing is kept"), "{}", text(&output.stderr));
    assert!(inspect(killed).status.code().is_none(), "the limit ends it");
    assert!(indexes(&kept, "shards").is_empty());
    counted(&inspect(r#"exec "$0" "$@""#));
    let [whole] = &indexes(&kept, "shards")[..] else { panic!("one index is kept") };
    counted(&inspect(killed));
    assert_eq!(indexes(&kept, "shards"), std::slice::from_ref(whole), "what is kept is not written again");

    // What is written next to the tars.
    let index = |script: &str| limited(script, &["index"]);
    fs::remove_dir_all(&kept).unwrap();
    let output = index(full);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("shards.infeed): File too large"), "{}", text(&output.stderr));
    assert!(index(killed).status.code().is_none());
    assert!(indexes(&tars, "infeed").is_empty());
    assert!(index(r#"exec "$0" "$@""#).status.success());
    let old = indexes(&tars, "infeed");
    assert_eq!(old.len(), 1);
    // Two of the samples are gone: the old index no longer fits, and stays where no new one can be written.
    let file = fs::File::options().write(true).open(tars.join("a.tar")).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1024 - 2 * 1024).unwrap();
    assert!(index(killed).status.code().is_none());
    assert_eq!(indexes(&tars, "infeed"), old);
    let output = inspect(r#"exec "$0" "$@""#);
    assert!(text(&output.stdout).contains("20,398"), "{}{}", text(&output.stdout), text(&output.stderr));
}
