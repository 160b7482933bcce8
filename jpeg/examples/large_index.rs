//! Measures the cost and benefit of an index of very many files. The files are copies of a folder's JPEGs with
//! different bytes after their end, so each counts as a separate file with the same pixels.
//!
//! `cargo run --release -p infeed-jpeg --example large_index -- FOLDER COPIES FILE [ROUNDS]`
//!
//! Indexes the copies on all cores, saves the index to FILE, and decodes crops of 2,000 copies (8 to 100 % of the area,
//! as RandomResizedCrop draws them) with each kind of index in turn. The shortest time of each crop counts.

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

mod folder;

use std::{env, fs, path::Path, thread, time::Instant};

use folder::files_below;
use infeed_jpeg::{Decoder, Header, Index, Scratch, Window};

/// Number of copies that are decoded.
const SAMPLE: usize = 2000;

fn main() -> std::io::Result<()> {
    let mut args = env::args().skip(1);
    let (Some(folder), Some(copies), Some(path)) = (args.next(), args.next(), args.next()) else {
        println!("usage: large_index FOLDER COPIES FILE [ROUNDS]");
        return Ok(());
    };
    let copies: usize = copies.parse().map_err(std::io::Error::other)?;
    let rounds: usize = args.next().and_then(|word| word.parse().ok()).unwrap_or(5);
    let mut files = files_below(Path::new(&folder))?;
    files.sort();

    let (index, before, start) = (Index::new(u64::MAX / 2), resident(), Instant::now());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for part in 0..threads {
            let (files, index) = (&files, &index);
            scope.spawn(move || {
                let (decoder, mut scratch) = (Decoder::new().index(index.clone()), Scratch::default());
                for n in (part..copies).step_by(threads) {
                    // A file that can't be decoded is not measured.
                    let _ = decoder.learn(&copy(files, n), &mut scratch);
                }
            });
        }
    });
    let (seconds, known) = (start.elapsed().as_secs_f64(), index.len());
    let each = |bytes: u64| bytes / known.max(1) as u64;
    println!(
        "{known} files learned in {seconds:.1} s on {threads} threads: {:.0} µs of a thread each",
        seconds * 1e6 * threads as f64 / known as f64
    );
    println!(
        "memory: {} B a file by its own count, {} B by the system's",
        each(index.bytes()),
        each(resident() - before)
    );
    let start = Instant::now();
    index.save(&path)?;
    let (seconds, size) = (start.elapsed().as_secs_f64(), fs::metadata(&path)?.len());
    println!("saved in {seconds:.2} s: {:.1} MB, {} B a file", size as f64 / 1e6, each(size));
    let (before, start) = (resident(), Instant::now());
    let stored = Index::open(&path, 0)?;
    println!("opened in {:.2} ms, {} KB of memory", start.elapsed().as_secs_f64() * 1e3, (resident() - before) >> 10);

    // Spread over all copies.
    let step = (copies / SAMPLE).max(1);
    let sample: Vec<Vec<u8>> = (0..copies).step_by(step).take(SAMPLE).map(|n| copy(&files, n)).collect();
    let mut kinds = vec![
        ("no index".to_owned(), None),
        (format!("{known} files in memory"), Some(index)),
        ("the same, saved".into(), Some(stored)),
    ];
    let mut room = None;
    for percent in [100, 70, 50, 40, 30, 20] {
        let index = Index::new(room.map_or(u64::MAX / 2, |all: u64| all * percent / 100));
        let (decoder, mut scratch) = (Decoder::new().index(index.clone()), Scratch::default());
        sample.iter().for_each(|file| drop(decoder.learn(file, &mut scratch)));
        room.get_or_insert(index.bytes());
        kinds.push((
            format!(
                "{} files with {percent} % of that memory, {} B each",
                index.len(),
                index.bytes() / index.len().max(1) as u64
            ),
            Some(index),
        ));
    }
    let decoders: Vec<Decoder> =
        kinds.iter().map(|(_, index)| index.iter().cloned().fold(Decoder::new(), Decoder::index)).collect();
    let mut least = vec![vec![f64::MAX; sample.len()]; kinds.len()];
    let (mut scratch, mut data) = (Scratch::default(), Vec::new());
    for round in 0..rounds {
        for (n, file) in sample.iter().enumerate() {
            let Ok(header) = Header::parse(file) else { continue };
            let window = crop(&header, n as u64);
            for turn in 0..decoders.len() {
                let kind = (turn + round + n) % decoders.len();
                // The first kind of index finds neither the file nor its tables in the caches; the order changes from
                // round to round.
                let start = Instant::now();
                let decoded = decoders[kind].planes(file, &header, &window, &mut scratch, &mut data);
                if decoded.is_ok() {
                    least[kind][n] = least[kind][n].min(start.elapsed().as_secs_f64());
                }
            }
        }
    }
    for ((name, _), least) in kinds.iter().zip(&least) {
        let known: Vec<f64> = least.iter().copied().filter(|seconds| *seconds < f64::MAX).collect();
        println!("{:7.1} µs a crop: {name}", known.iter().sum::<f64>() / known.len() as f64 * 1e6);
    }
    Ok(())
}

/// Copy number `n`.
fn copy(files: &[Vec<u8>], n: usize) -> Vec<u8> {
    [&files[n % files.len()][..], &n.to_le_bytes()].concat()
}

/// The same crop for the same number: 8 to 100 % of the area, any place.
fn crop(header: &Header, n: u64) -> Window {
    let draw = |k: u64| {
        let mixed = (n * 8 + k).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 40) as f64 / (1_u64 << 24) as f64
    };
    let side = 0.08_f64.mul_add(1.0 - draw(0), draw(0)).sqrt();
    let range = |size: u32, at: f64| {
        let len = (f64::from(size) * side).max(1.0) as u32;
        let start = (f64::from(size - len) * at) as u32;
        start..start + len
    };
    Window::new(header, range(header.height(), draw(1)), range(header.width(), draw(2)))
}

/// Bytes of memory of this process, if the system reports them.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}
