//! What people see at terminals of several widths: no line is wider, none is stretched, and nothing is left out.

use std::sync::OnceLock;

use crate::command::{in_terminal, ok, text};

/// What a terminal of so many columns shows; colours and bars that were drawn over left out.
fn at_terminal(columns: usize, args: &str) -> Option<Vec<String>> {
    // The terminal's own size counts.
    let output = in_terminal(columns, args)?.env("COLUMNS", "33").output().expect("script starts");
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{args}: {shown}");
    Some(plain(&shown).split(['\r', '\n']).map(|line| line.trim_end().to_owned()).collect())
}

/// Without orders to the terminal.
fn plain(shown: &str) -> String {
    let mut out = String::new();
    let mut chars = shown.chars();
    while let Some(c) = chars.next() {
        match c {
            // ESC [ parameters letter
            '\u{1b}' => drop(chars.by_ref().find(char::is_ascii_alphabetic)),
            c => out.push(c),
        }
    }
    out
}

/// Each word of a command's figures for people is shown, and no line is wider than the terminal, except a single word.
fn fits(columns: usize, args: &str, names: &[&str]) {
    let Some(lines) = at_terminal(columns, args) else { return };
    for line in &lines {
        // Letters of these tables are one column wide each.
        let wide = line.chars().count() > columns;
        // A step of a transform, to be copied.
        if line.starts_with("{\"op\"") || line.starts_with(".normalize(") {
            continue;
        }
        assert!(!wide || !line.trim().contains(' '), "{args} at {columns} columns: {line:?} in {lines:#?}");
    }
    let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
    for name in names {
        assert!(words.contains(name), "{args} at {columns} columns: no {name:?} in {lines:#?}");
    }
}

fn photos() -> &'static str {
    static PHOTOS: OnceLock<(tempfile::TempDir, String)> = OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().unwrap();
        // No terminal of 60 columns holds it beside a name.
        let path =
            folder.path().join("a-folder-whose-name-is-as-long-as-those-of-datasets-often-are").display().to_string();
        ok(&["synth", "imagenet", &path, "--count", "8", "--classes", "2"]);
        (folder, path)
    };
    &PHOTOS.get_or_init(make).1
}

const WIDTHS: [usize; 3] = [60, 80, 200];

#[test]
fn the_summary_of_a_run_fits() {
    for columns in WIDTHS {
        let args = format!("run {} -b 4 -e 2 -w 1 --max-batches 3 --log-every 1 --checksum", photos());
        fits(columns, &args, &["dataset", "delivered", "stopped", "checksum", "busy", "starved", "blocked", "p99"]);
    }
}

#[test]
fn the_tables_of_inspect_fit() {
    for columns in WIDTHS {
        let names = ["format", "classes", "record", "object", "bytes", "kind", "label", "channel", "mean", "std"];
        fits(columns, &format!("inspect {} --stats", photos()), &names);
    }
}

#[test]
fn the_tables_of_profile_fit() {
    for columns in WIDTHS {
        let names = ["self", "total", "average", "calls", "CPU", "threads", "stage", "decode", "augmentation"];
        fits(columns, &format!("profile {} -b 4 -w 1 -t imagenet-train --max-time 20ms", photos()), &names);
    }
}

#[test]
fn the_verdict_of_doctor_fits() {
    for columns in WIDTHS {
        let names = ["headspace", "cold", "cached", "samples/s", "prep", "/dev/shm:", "GPU:"];
        fits(columns, &format!("doctor {} -b 4 -w 1 --max-batches 2 --step-time 1ms", photos()), &names);
    }
}

#[test]
fn the_cells_of_a_sweep_fit() {
    for columns in WIDTHS {
        // A cell that fails has a sentence among figures.
        let names = ["workers", "batch", "it/s", "samples/s", "cores", "GPU", "knee,"];
        fits(columns, &format!("sweep {} --workers 0,1 --batch-size 4 --max-batches 2", photos()), &names);
    }
}

#[test]
fn the_tables_of_a_plan_fit() {
    for columns in WIDTHS {
        for nodes in ["4", "1,2,4,8"] {
            let names = ["hits", "GET/s", "egress", "lasts", "waiting", "bound"];
            let data = "--records 1281167 --record-bytes 110KB --cache 200GB";
            fits(columns, &format!("plan {data} --nodes {nodes}"), &names);
        }
    }
}

#[test]
fn a_wide_terminal_stretches_nothing_and_a_pipe_gets_one_line_for_each_row() {
    let args = ["plan", "--records", "1281167", "--record-bytes", "110KB", "--nodes", "4"];
    let piped: Vec<String> = ok(&args).lines().map(|line| line.trim_end().to_owned()).collect();
    let widest = piped.iter().map(|line| line.chars().count()).max().unwrap();
    assert!(widest > 100, "{piped:#?}");
    if let Some(shown) = at_terminal(widest, &args.join(" ")) {
        let shown: Vec<_> = shown.into_iter().filter(|line| !line.is_empty()).collect();
        assert_eq!(shown, piped.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>());
    }
}
