//! From what was typed to the options of each cell.

use std::ffi::OsString;

use infeed::DType;

use super::cell::Settings;
use crate::args::{Auto, ListArgs};

/// Every combination, workers changing fastest.
pub(super) fn settings(lists: &ListArgs) -> Vec<Settings> {
    fn texts<T>(list: &[T], text: impl Fn(&T) -> String) -> Vec<Option<String>> {
        // An option that was not given stays as it is.
        if list.is_empty() { vec![None] } else { list.iter().map(|value| Some(text(value))).collect() }
    }
    let auto = |value: &Auto<usize>| value.0.map_or("auto".into(), |n| n.to_string());
    let mut all = Vec::new();
    for device in texts(&lists.device, |device| device.0.map_or("auto".into(), |device| device.to_string())) {
        for dtype in texts(&lists.dtype, |dtype| DType::from(*dtype).to_string()) {
            for prefetch in texts(&lists.prefetch, auto) {
                for batch_size in texts(&lists.batch_size, ToString::to_string) {
                    for workers in texts(&lists.workers, auto) {
                        let (device, dtype) = (device.clone(), dtype.clone());
                        let (prefetch, batch_size) = (prefetch.clone(), batch_size.clone());
                        let settings = Settings { workers, batch_size, prefetch, dtype, device };
                        if !all.contains(&settings) {
                            all.push(settings);
                        }
                    }
                }
            }
        }
    }
    all
}

/// What was typed, less the url, the lists and where the sweep's own figures go. Clap has taken all of it, so each of
/// these has its value.
pub(super) fn shared_options(given: Vec<OsString>, url: &str) -> Vec<OsString> {
    const OWN: [&str; 11] = [
        "--workers",
        "--batch-size",
        "--prefetch",
        "--dtype",
        "--device",
        "--out",
        "--csv",
        "--json",
        "--html",
        "--auto",
        "--settle",
    ];
    let mut shared = Vec::new();
    let mut given = given.into_iter();
    let mut url_seen = false;
    while let Some(word) = given.next() {
        let text = word.to_string_lossy();
        let name = text.split_once('=').map_or(&*text, |(name, _)| name);
        if OWN.contains(&name) {
            if name.len() == text.len() {
                given.next();
            }
        } else if !url_seen && text == url {
            url_seen = true;
        } else {
            let takes_value = text.starts_with("--") && name.len() == text.len();
            shared.push(word);
            // Every option of a run that a sweep has takes a value, which may look like one of the words above.
            if takes_value {
                shared.extend(given.next());
            }
        }
    }
    // Nobody said how long: an epoch may take a millisecond or a day, and neither tells which cell is faster.
    let ends = ["--epochs", "--max-batches", "--max-time"];
    let says = |option: &OsString| ends.iter().any(|end| option.to_string_lossy().split('=').next() == Some(end));
    if !shared.iter().any(says) {
        shared.extend(["--epochs", "1000000000", "--max-time", CELL].map(OsString::from));
    }
    shared
}

/// How long a cell runs when the command says no other end.
const CELL: &str = "3s";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_get_the_options_that_are_not_the_sweeps() {
        let given = [
            "/data",
            "--workers",
            "1,2",
            "--transform",
            "none",
            "--batch-size=4,8",
            "--out",
            "x",
            "--shuffle",
            "7",
            "--config",
            "--out",
            "--json",
            "-",
            "--auto",
            "3",
        ];
        let shared = shared_options(given.map(OsString::from).into(), "/data");
        let said = ["--transform", "none", "--shuffle", "7", "--config", "--out"];
        assert_eq!(shared, [&said[..], &["--epochs", "1000000000", "--max-time", CELL]].concat());
        let given = ["/data", "--max-batches=7"].map(OsString::from);
        assert_eq!(shared_options(given.into(), "/data"), ["--max-batches=7"]);
    }

    #[test]
    fn every_combination_is_a_cell_once() {
        let lists = ListArgs {
            batch_size: vec![4, 8],
            dtype: Vec::new(),
            device: Vec::new(),
            workers: vec![Auto(Some(1)), Auto(None), Auto(Some(1))],
            prefetch: vec![Auto(Some(2))],
        };
        let all: Vec<String> = settings(&lists).iter().map(ToString::to_string).collect();
        assert_eq!(all.len(), 4);
        assert_eq!(all[0], "workers 1, batch-size 4, prefetch 2");
        assert_eq!(all[3], "workers auto, batch-size 8, prefetch 2");
    }
}
