//! Compares this decoder with zune-jpeg, and whole images with crops: all JPEGs of a folder, in memory, on one thread.
//!
//! `cargo run --release -p infeed-jpeg --example compare -- FOLDER [ROUNDS]`

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

mod folder;

use std::{env, ops::Range, path::Path, time::Instant};

use folder::files_below;
use infeed_jpeg::{Decoder, Header, Index, Result, Scratch, Window};
use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};

fn main() -> std::io::Result<()> {
    let mut args = env::args().skip(1);
    let Some(folder) = args.next() else {
        println!("usage: compare FOLDER [ROUNDS]");
        return Ok(());
    };
    let rounds = args.next().and_then(|word| word.parse().ok()).unwrap_or(3);
    let files = files_below(Path::new(&folder))?;
    println!("{} files that have planes", files.len());

    let index = Index::new(256 << 20);
    let (plain, indexed) = (Decoder::new(), Decoder::new().index(index.clone()));
    let mut scratch = Scratch::default();
    let mut data = Vec::new();
    for round in 0..rounds {
        println!("round {}", round + 1);
        time("whole, RGB", &files, |file| {
            let header = Header::parse(file)?;
            let rows = 0..header.height();
            data.resize(header.len_bytes(&rows) as usize, 0);
            plain.pixels(file, &header, rows, &mut scratch, &mut data)
        });
        time("whole, RGB, zune-jpeg", &files, |file| {
            let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
            let _ = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(file), options).decode();
            Ok(())
        });
        for (name, decoder) in [("the middle quarter, planes", &plain), ("the same with an index", &indexed)] {
            time(name, &files, |file| {
                let header = Header::parse(file)?;
                let middle = |size: u32| -> Range<u32> { size / 4..size - size / 4 };
                let window = Window::new(&header, middle(header.height()), middle(header.width()));
                decoder.planes(file, &header, &window, &mut scratch, &mut data).map(drop)
            });
        }
        time("whole at 1/8, planes", &files, |file| {
            let header = Header::parse(file)?;
            let window = Window::of_rows(&header, 0..header.height()).at_scale(8);
            plain.planes(file, &header, &window, &mut scratch, &mut data).map(drop)
        });
    }
    Ok(())
}

fn time(name: &str, files: &[Vec<u8>], mut decode: impl FnMut(&[u8]) -> Result<()>) {
    let begun = Instant::now();
    let failed = files.iter().filter(|file| decode(file).is_err()).count();
    let rate = files.len() as f64 / begun.elapsed().as_secs_f64();
    println!(
        "  {name:28} {rate:8.0} images/s{}",
        if failed > 0 { format!(", {failed} failed") } else { String::new() }
    );
}
