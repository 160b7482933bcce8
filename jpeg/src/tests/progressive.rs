//! Progressive files of any script give the pixels of baseline files of the same coefficients.

use super::writer::{Picture, any_script, photo_like, usual_script};
use crate::{Decoder, Level, draws::Draws};

/// Sampling factors, across and down: the usual ones, and odd ones.
const FACTORS: [&[u8]; 12] = [
    &[0x11],
    &[0x22],
    &[0x11, 0x11, 0x11],
    &[0x21, 0x11, 0x11],
    &[0x12, 0x11, 0x11],
    &[0x22, 0x11, 0x11],
    &[0x41, 0x11, 0x11],
    &[0x12, 0x21, 0x11],
    &[0x31, 0x11, 0x11],
    &[0x22, 0x21, 0x12],
    &[0x44, 0x22, 0x11],
    &[0x11, 0x22, 0x21],
];

/// Coefficients of an image of any size, and a number for other choices.
fn draw(key: u64) -> (Draws, &'static [u8], Picture) {
    let mut draws = Draws::new([key, 7, 7]);
    let factors = FACTORS[draws.below(FACTORS.len() as u64) as usize];
    let [height, width] = [0; 2].map(|_| 1 + draws.below(70) as usize);
    let picture = photo_like(&mut draws, height, width, factors);
    (draws, factors, picture)
}

#[test]
fn files_of_any_script_give_the_pixels_of_a_baseline_file() {
    for key in 0..150 {
        let (mut draws, factors, picture) = draw(key);
        let script = if key % 5 == 0 { usual_script(factors) } else { any_script(&mut draws, factors) };
        let baseline = picture.baseline(draws.below(5) as u16, None);
        let mut other = draws.clone();
        let file = picture.progressive(&script, (draws.below(2) == 0).then_some(&mut other));
        let expected = Decoder::new().decode(&baseline).unwrap();
        for level in [Level::Best, Level::Portable] {
            let found = Decoder::new().level(level).decode(&file).unwrap();
            assert!(found == expected, "{key}: {factors:x?} {level:?} {script:?}");
        }
    }
}

#[test]
fn what_the_scans_leave_out_is_zero() {
    for key in 200..300 {
        let (mut draws, factors, picture) = draw(key);
        let script = if key % 5 == 0 { usual_script(factors) } else { any_script(&mut draws, factors) };
        // First coefficients are all that must be there.
        let first = |n| script.iter().position(|scan| scan.components.contains(&n)).unwrap();
        let least = (0..factors.len()).map(first).max().unwrap() + 1;
        let some = &script[..least + draws.below((script.len() - least) as u64 + 1) as usize];
        let expected = Decoder::new().decode(&picture.known(some).baseline(0, None)).unwrap();
        let found = Decoder::new().decode(&picture.progressive(some, Some(&mut draws))).unwrap();
        assert!(found == expected, "{key}: {factors:x?} {some:?}");
    }
}
