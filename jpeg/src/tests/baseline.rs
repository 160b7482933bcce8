//! A progressive file that is written anew as baseline has the same pixels, and notes.

use super::{
    progressive::{Drawn, small},
    writer::{any_script, photo_like, usual_script},
};
use crate::{Decoder, ErrorKind, Header, Scratch, draws::Draws};

#[test]
fn a_file_written_as_baseline_has_the_same_pixels() {
    let (decoder, mut scratch) = (Decoder::new(), Scratch::default());
    let mut held = [0; 2];
    for key in 0..600 {
        let mut drawn = Drawn::any(key);
        let file = drawn.progressive();
        let want = decoder.decode(&file).unwrap();
        for restarts in [false, true] {
            let baseline = decoder.to_baseline(&file, restarts, &mut scratch).unwrap();
            held[usize::from(baseline.is_some())] += 1;
            assert_eq!(baseline.is_some(), drawn.blocks_of_a_unit() <= 10, "{key}");
            let Some(baseline) = baseline else { continue };
            let header = Header::parse(&baseline).unwrap();
            assert!(!header.is_progressive() && header.has_restarts() == restarts, "{key}");
            assert!(decoder.clone().strict(true).decode(&baseline).unwrap() == want, "{key}");
            // Nothing is left to do.
            assert_eq!(decoder.to_baseline(&baseline, restarts, &mut scratch).unwrap(), None);
        }
    }
    assert!(held.iter().all(|count| *count > 50), "{held:?}");
}

#[test]
fn notes_are_kept_and_tables_are_not() {
    let file = small().progressive(&usual_script(&[0x22, 0x11, 0x11]), None);
    let note = |marker: u8, text: &[u8]| [&[0xff, marker], &(text.len() as u16 + 2).to_be_bytes()[..], text].concat();
    let notes =
        [note(0xe0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"), note(0xe2, b"ICC_PROFILE\0..."), note(0xfe, b"hello")];
    let noted = [&file[..2], &notes.concat(), &file[2..]].concat();
    let baseline = Decoder::new().to_baseline(&noted, false, &mut Scratch::default()).unwrap().unwrap();
    assert!(baseline[2..].starts_with(&notes.concat()));
    let count = |marker: u8| baseline.windows(2).filter(|two| *two == [0xff, marker]).count();
    assert_eq!((count(0xc0), count(0xc2), count(0xda), count(0xc4)), (1, 0, 1, 4));
}

#[test]
fn values_that_baseline_cannot_hold_are_left_to_the_progressive_file() {
    for (place, value) in [(0, 2047), (0, -2048), (5, 1023), (5, -1024), (63, 1024)] {
        let mut picture = photo_like(&mut Draws::new([1, 2, 3]), 24, 24, &[0x11]);
        picture.components[0].blocks.iter_mut().for_each(|block| *block = [0; 64]);
        picture.components[0].blocks[4][place] = value;
        let file = picture.progressive(&usual_script(&[0x11]), None);
        let baseline = Decoder::new().to_baseline(&file, false, &mut Scratch::default()).unwrap();
        let fits = value.abs() < if place == 0 { 2048 } else { 1024 };
        assert_eq!(baseline.is_some(), fits, "{value} at {place}");
    }
}

#[test]
fn a_damaged_file_is_an_error_or_gives_what_it_shows() {
    let (decoder, mut scratch, mut draws) = (Decoder::new(), Scratch::default(), Draws::new([4, 4, 4]));
    let mut given = [0; 2];
    for n in 0..3000u64 {
        let factors = &[0x22, 0x11, 0x11];
        let picture = photo_like(&mut draws, 40, 50, factors);
        let script = if n % 2 == 0 { usual_script(factors) } else { any_script(&mut draws, factors) };
        let mut file = picture.progressive(&script, None);
        for _ in 0..=draws.below(3) {
            let at = 2 + draws.below(file.len() as u64 - 2) as usize;
            match draws.below(3) {
                0 => file.truncate(at + 2),
                _ => file[at] ^= 1 << draws.below(8),
            }
        }
        match decoder.to_baseline(&file, n % 3 == 0, &mut scratch) {
            Ok(Some(baseline)) => {
                given[0] += 1;
                assert!(decoder.decode(&baseline).unwrap() == decoder.decode(&file).unwrap(), "{n}");
            }
            Ok(None) => {}
            Err(error) => {
                given[1] += 1;
                assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Unsupported), "{n}: {error}");
            }
        }
    }
    assert!(given.iter().all(|count| *count > 300), "{given:?}");
}
