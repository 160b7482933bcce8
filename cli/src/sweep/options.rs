//! The options of each cell, from the arguments of the command.

use std::ffi::OsString;

use infeed::DType;

use super::cell::Settings;
use crate::{
    args::{Auto, ListArgs},
    child::{ENDS, FOR_A_WHILE},
    typed::{Typed, typed},
};

/// All combinations, with workers changing fastest.
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

/// The arguments without the url, the lists and the options for the sweep's own output.
pub(super) fn shared_options(given: Vec<OsString>, url: &str) -> Vec<OsString> {
    const OWN: [&str; 12] = [
        "workers",
        "batch-size",
        "prefetch",
        "dtype",
        "device",
        "out",
        "csv",
        "json",
        "html",
        "auto",
        "settle",
        // The output of a cell is not shown.
        "quiet",
    ];
    let mut shared = Vec::new();
    let (mut url_seen, mut ends) = (false, false);
    for Typed { name, words } in typed("sweep", given) {
        match name.as_deref() {
            Some(name) if OWN.contains(&name) => {}
            None if !url_seen && words[0].to_string_lossy() == url => url_seen = true,
            name => {
                ends |= name.is_some_and(|name| ENDS.contains(&name));
                shared.extend(words);
            }
        }
    }
    if !ends {
        shared.extend(FOR_A_WHILE.map(OsString::from));
    }
    shared
}

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
        assert_eq!(shared, [&said[..], &FOR_A_WHILE].concat());
        let given = ["/data", "--max-batches=7"].map(OsString::from);
        assert_eq!(shared_options(given.into(), "/data"), ["--max-batches=7"]);
        // Short ones, with their values beside them or not, and switches, behind which no value stands.
        let given = ["-w", "1,2", "--masks", "-b64", "-q", "-e", "/data", "-tnone", "--allow-incomplete", "/data"];
        let shared = shared_options(given.map(OsString::from).into(), "/data");
        assert_eq!(shared, ["--masks", "-e", "/data", "-tnone", "--allow-incomplete"]);
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
