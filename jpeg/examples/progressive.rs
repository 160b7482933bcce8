//! Writes small progressive files that no encoder writes, as seeds for fuzzing:
//! `cargo run --example progressive -- FOLDER`.

use std::{env, fs, io, path::PathBuf};

use draws::Draws;
use writer::{FACTORS, any_script, photo_like, usual_script};

#[allow(dead_code, reason = "the tests' own")]
#[path = "../src/draws.rs"]
mod draws;
#[allow(dead_code, reason = "the tests' own")]
#[path = "../src/tests/writer.rs"]
mod writer;

fn main() -> io::Result<()> {
    let folder: PathBuf = env::args_os().nth(1).unwrap_or_else(|| "progressive".into()).into();
    fs::create_dir_all(&folder)?;
    for n in 0..160 {
        let mut draws = Draws::new([n, 2, 0]);
        let factors = FACTORS[n as usize % FACTORS.len()];
        let [height, width] = [0; 2].map(|_| 1 + draws.below(40) as usize);
        let picture = photo_like(&mut draws, height, width, factors);
        let script = if n < 40 { usual_script(factors) } else { any_script(&mut draws, factors) };
        let odd = n >= 80;
        fs::write(folder.join(format!("{n}.jpg")), picture.progressive(&script, odd.then_some(&mut draws)))?;
    }
    Ok(())
}
