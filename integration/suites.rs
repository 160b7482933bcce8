//! The JPEG files of public test suites, if `INFEED_JPEG_SUITES` names a folder of them (made by `suites/fetch.py`).

use std::{
    collections::BTreeMap,
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use infeed::{
    DType, ErrorKind, Layout,
    codec::{ImageCodec, Jpeg, PixelBuffer, Window},
    dataset::{ImageInfo, SampleRng},
    internal::kernels::{Axis, ChannelTable, Filter, Pixels, ResampleParams, Resampler, RowSpec},
};
use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};

use crate::support::{
    PATIENCE,
    jpeg_check::{Checked, LEVELS, check},
    skipped,
};

/// Larger files are left out: at every level and size they take long.
const MOST_BYTES: u64 = 192 << 20;

/// What became of the files of a suite.
#[derive(Debug, Default)]
struct Tally {
    files: usize,
    /// Too large to be looked at.
    left_out: usize,
    decoded: usize,
    /// Those that the plain decoder reads too, to the same bits.
    plain: usize,
    /// Among `decoded`: files with a reference, how many equal it to the bit, and the lowest PSNR of the others.
    references: usize,
    equal: usize,
    lowest: f64,
    /// PSNR of crops as they are and of crops resized to 224 x 224, against the same of the reference.
    crops: [Vec<f64>; 2],
    /// Decoded by zune-jpeg as it comes, a peer.
    zune: usize,
    /// Error by error, without the numbers.
    refused: BTreeMap<String, usize>,
    /// Refused, and there is a reference.
    only_libjpeg: Vec<String>,
    /// libjpeg had a complaint, or its usual interface none for such a kind.
    lenient: Vec<String>,
    /// Crops that are far from the reference's.
    far: Vec<String>,
    slowest: Duration,
}

#[test]
fn public_suites_are_decoded_or_refused_in_words() {
    let Some(folder) = env::var_os("INFEED_JPEG_SUITES") else {
        return skipped("public JPEG suites: INFEED_JPEG_SUITES names no folder (integration/suites/README.md)");
    };
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let mut broken = Vec::new();
    for path in files_below(Path::new(&folder)) {
        let relative = path.strip_prefix(&folder).expect("below the folder").to_owned();
        let suite = relative.iter().next().expect("a name").to_string_lossy().into_owned();
        let tally = tallies.entry(suite).or_insert_with(|| Tally { lowest: f64::INFINITY, ..Tally::default() });
        let file = fs::read(&path).unwrap();
        let begun = Instant::now();
        if let Err(what) = catch_unwind(AssertUnwindSafe(|| look(&path, &file, tally))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
        }) {
            broken.push(format!("{}: {what}", relative.display()));
        }
        let taken = begun.elapsed();
        tally.slowest = tally.slowest.max(taken);
        if taken > PATIENCE {
            broken.push(format!("{}: took {taken:?}", relative.display()));
        }
    }
    assert!(!tallies.is_empty(), "no JPEG files below {}", folder.display());
    print(&tallies);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !matches!(path.extension().and_then(|e| e.to_str()), Some("ppm" | "pgm" | "tsv")) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn look(path: &Path, file: &[u8], tally: &mut Tally) -> Result<(), String> {
    tally.files += 1;
    let reference = ["ppm", "pgm", "lenient.ppm", "lenient.pgm"].into_iter().find_map(|ending| {
        let name = format!("{}.{ending}", path.file_name()?.to_str()?);
        Some((ending.len() == 3, pnm(&fs::read(path.with_file_name(name)).ok()?)?))
    });
    let name = path.file_name().unwrap_or_default().display();
    let error = match check(file, MOST_BYTES) {
        None => {
            tally.left_out += 1;
            return Ok(());
        }
        Some(Ok(Checked { info, whole: Ok(whole), plain })) => {
            tally.decoded += 1;
            let zune = by_zune(file, info.channels);
            tally.zune += usize::from(zune.is_some());
            tally.plain += usize::from(plain.as_ref().is_ok_and(|plain| plain.tame));
            let Some((clean, (size, pixels))) = reference else { return Ok(()) };
            if !clean {
                let psnr = if pixels.len() == whole.len() { psnr(&whole, &pixels) } else { 0.0 };
                tally.lenient.push(format!("{name}: {psnr:.1} dB"));
                return Ok(());
            }
            if size != [info.width as usize, info.height as usize] || pixels.len() != whole.len() {
                return Err(format!("{info:?}, the reference is {size:?}"));
            }
            tally.references += 1;
            let header = infeed_jpeg::Header::parse(file).map_err(|e| e.to_string())?;
            // Others come as pixels.
            if header.has_planes() && header.is_finest_first() && !header.has_thirds() {
                for n in 0..4 {
                    let [plain, resized] = crop(file, &info, &pixels, n)?;
                    if plain.min(resized) < 36.0 {
                        tally.far.push(format!("{name}: crop {n}: {plain:.1} and {resized:.1} dB"));
                    }
                    tally.crops[0].push(plain);
                    tally.crops[1].push(resized);
                }
            }
            let psnr = psnr(&whole, &pixels);
            if psnr.is_infinite() {
                tally.equal += 1;
                return Ok(());
            }
            tally.lowest = tally.lowest.min(psnr);
            // Ours follow libjpeg to the bit, but it smooths the blocks of progressive files that lack scans.
            let least = if header.is_progressive() { 20.0 } else { 99.0 };
            return if psnr < least { Err(format!("{psnr:.1} dB from the reference")) } else { Ok(()) };
        }
        Some(Ok(Checked { whole: Err(error), .. }) | Err(error)) => error,
    };
    tally.zune += usize::from(by_zune(file, 3).is_some());
    let kind = if error.kind() == ErrorKind::Unsupported { "unsupported" } else { "damaged" };
    let text = error.to_string();
    let text = text.split_once(": ").map_or(&*text, |(_, rest)| rest).split(';').next().unwrap_or_default();
    let general: String = text
        .split(' ')
        .map(|word| if word.starts_with(|c: char| c.is_ascii_digit()) { "…" } else { word })
        .fold(String::new(), |line, word| if line.is_empty() { word.to_owned() } else { format!("{line} {word}") });
    *tally.refused.entry(format!("{kind}: {}", general.replace("…)", "…"))).or_default() += 1;
    match reference {
        Some((true, _)) => tally.only_libjpeg.push(format!("{name}: {text}")),
        Some((false, _)) => tally.lenient.push(format!("{name}: {text}")),
        None => {}
    }
    Ok(())
}

/// Random crop `n` of a file, as it is and at 224 x 224, in dB from what the same kernels make of the reference's pixels.
fn crop(file: &[u8], info: &ImageInfo, reference: &[u8], n: u64) -> Result<[f64; 2], String> {
    let mut draws = SampleRng::new(5, n, file.len() as u64).op(0);
    let mut range = |size: u32| {
        let len = 1 + draws.below(size.into()) as u32;
        let start = draws.below(u64::from(size - len) + 1) as u32;
        start..start + len
    };
    let (y, x) = (range(info.height), range(info.width));
    let channels = u32::from(info.channels);
    let all = |value| vec![value; channels as usize];
    let table = ChannelTable { scale: all(1.0), bias: all(0.0), fill: all(0.0), cutout: all(0.0) };
    let mut found = [0.0; 2];
    for (found, resized) in found.iter_mut().zip([false, true]) {
        let [height, width] = if resized { [224; 2] } else { [y.len() as u32, x.len() as u32] };
        let row = RowSpec { height, width, channels, dtype: DType::U8, layout: Layout::Nhwc };
        let axis = |part: &std::ops::Range<u32>, size: u32, to: u32| Axis {
            start: part.start as f32,
            step: part.len() as f32 / to as f32,
            // Colour is interpolated across the ends of the crop, as in a whole image.
            low: if resized { part.start } else { 0 },
            high: if resized { part.end } else { size },
            from: 0,
            to,
            flip: 0,
        };
        let (y, x) = (axis(&y, info.height, height), axis(&x, info.width, width));
        let params = ResampleParams { y, x, cutout: [0; 4], filter: Filter::Triangle };
        let mut expected = vec![0; row.len_bytes()];
        let pixels = Pixels { info: *info, rows: 0..info.height, data: reference };
        Resampler::new().run(&pixels, &params, &table, &row, &mut expected).map_err(|e| e.to_string())?;
        let mut window = Window::of_params(&params, &row);
        // Values of whole blocks are other numbers than means of pixels: not what is measured here.
        window.scale = 1;
        let mut rows = Vec::new();
        for level in LEVELS {
            let (mut out, mut made) = (PixelBuffer::default(), vec![0; row.len_bytes()]);
            let header = Jpeg::new().header(file).map_err(|e| e.to_string())?;
            Jpeg::new()
                .level(level)
                .window(file, &header, &window, &mut out)
                .map_err(|e| format!("{window:?}: {e}"))?;
            let planes = out.planes(info).ok_or("no planes")?;
            Resampler::with_level(level)
                .run_planes(&planes, &params, &table, &row, &mut made)
                .map_err(|e| e.to_string())?;
            rows.push(made);
        }
        if rows.iter().any(|row| *row != rows[0]) {
            return Err(format!("{window:?} differs from level to level"));
        }
        *found = psnr(&rows[0], &expected);
    }
    Ok(found)
}

/// Width and height, and the values.
fn pnm(bytes: &[u8]) -> Option<([usize; 2], Vec<u8>)> {
    let mut parts = bytes.splitn(4, |b| b.is_ascii_whitespace());
    let (_, width, height, rest) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    Some(([number(width)?, number(height)?], rest.strip_prefix(b"255\n")?.to_vec()))
}

fn psnr(a: &[u8], b: &[u8]) -> f64 {
    let squares: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum();
    if squares == 0.0 { f64::INFINITY } else { 10.0 * (255.0f64.powi(2) * a.len() as f64 / squares).log10() }
}

fn by_zune(file: &[u8], channels: u8) -> Option<Vec<u8>> {
    let space = if channels == 1 { ColorSpace::Luma } else { ColorSpace::RGB };
    let options = DecoderOptions::default().jpeg_set_out_colorspace(space);
    let decode = || zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(file), options).decode().ok();
    catch_unwind(AssertUnwindSafe(decode)).ok().flatten()
}

#[expect(clippy::print_stderr, reason = "the table is what whoever fetched the suites wants to see")]
fn print(tallies: &BTreeMap<String, Tally>) {
    eprintln!(
        "| suite | files | decoded | by zune-jpeg | plain, same bits | references | same bits | lowest of the others, dB |"
    );
    eprintln!("|---|---|---|---|---|---|---|---|");
    for (suite, t) in tallies {
        let lowest = if t.lowest.is_finite() { format!("{:.1}", t.lowest) } else { "-".into() };
        eprintln!(
            "| {suite} | {} | {} | {} | {} | {} | {} | {lowest} |",
            t.files, t.decoded, t.zune, t.plain, t.references, t.equal
        );
    }
    for (suite, t) in tallies {
        eprintln!("{suite}: slowest {:.1?}, {} left out", t.slowest, t.left_out);
        for (name, crops) in ["crops as they are", "crops to 224x224"].into_iter().zip(&t.crops) {
            let some: Vec<f64> = crops.iter().copied().filter(|psnr| psnr.is_finite()).collect();
            let mean = some.iter().sum::<f64>() / some.len().max(1) as f64;
            let lowest = some.iter().copied().fold(f64::INFINITY, f64::min);
            let same = crops.len() - some.len();
            eprintln!("{suite}: {} {name}: {same} the same bits, others {mean:.1} dB, lowest {lowest:.1}", crops.len());
        }
        t.refused.iter().for_each(|(why, count)| eprintln!("{suite}: {count} refused: {why}"));
        t.lenient.iter().for_each(|line| eprintln!("{suite}: libjpeg complains, or is not asked: {line}"));
        t.far.iter().for_each(|line| eprintln!("{suite}: {line}"));
        t.only_libjpeg.iter().for_each(|line| eprintln!("{suite}: only libjpeg takes {line}"));
    }
}
