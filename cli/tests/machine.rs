//! What a machine refuses is an error that says so: no abort, no panic, no hang.

use std::fs;

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
