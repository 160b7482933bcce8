//! Sizes and offsets: the rounding of each step, and chains of windows. Rounding follows torchvision.

use infeed_core::random::Draws;

use crate::kernels::Axis;

/// One axis of the visible part of the image after some steps, in coordinates before any flip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// Start of the frame, in source pixels.
    start: f64,
    /// Source pixels per pixel of the frame.
    step: f64,
    /// Source pixels from `low` to `high` may be read.
    low: u32,
    high: u32,
    /// Pixels of the frame.
    pub(super) len: i64,
    /// Pixels `from` to `to` of the frame show the image; the rest is padding.
    from: i64,
    to: i64,
    flip: bool,
}

impl Frame {
    /// All `len` source pixels.
    pub(super) fn whole(len: u32) -> Self {
        let to = i64::from(len);
        Self { start: 0.0, step: 1.0, low: 0, high: len, len: to, from: 0, to, flip: false }
    }

    /// `len` pixels of the frame from `offset` on. Both may extend beyond the frame.
    pub(super) fn crop(self, offset: i64, len: i64) -> Self {
        // Steps see the flipped image; the frame is in coordinates before the flip.
        let offset = if self.flip { self.len - offset - len } else { offset };
        let (from, to) = ((self.from - offset).clamp(0, len), (self.to - offset).clamp(0, len));
        Self { start: self.start + offset as f64 * self.step, len, from, to, ..self }
    }

    /// Whether it shows only the image, so that it may be resized.
    pub(super) const fn is_full(&self) -> bool {
        self.from == 0 && self.to == self.len
    }

    /// The frame resized to `len` pixels. It must be full and must not be resized yet.
    pub(super) fn resize(self, len: i64) -> Self {
        let low = self.start as u32;
        Self { step: self.len as f64 / len as f64, low, high: low + self.len as u32, len, from: 0, to: len, ..self }
    }

    /// Whether it shows nothing of the image.
    pub(super) const fn is_empty(&self) -> bool {
        self.from >= self.to
    }

    /// Whether it was resized.
    pub(super) fn is_resized(&self) -> bool {
        self.step != 1.0
    }

    /// The frame resized to `len` pixels, if it shows nothing of the image.
    pub(super) fn resize_blank(self, len: i64) -> Self {
        Self { start: 0.0, step: self.len as f64 / len as f64, low: 0, high: 1, len, from: 0, to: 0, flip: false }
    }

    /// The part of the frame that affects its resize to `len` pixels: the image, and the padding that filters reach.
    /// Start and length, as the steps see them.
    pub(super) fn around(self, len: i64) -> (i64, i64) {
        let (from, to) = self.seen();
        let margin = (2.0 * self.reach(len)).ceil() as i64 + 2;
        let start = (from - margin).max(0);
        (start, (to + margin).min(self.len) - start)
    }

    /// The frame resized to `len` pixels, made from a tile of the part that [`around`](Self::around) gave.
    pub(super) fn resize_around(self, len: i64) -> Self {
        let ((start, part), (from, to)) = (self.around(len), self.seen());
        let (step, reach) = (self.len as f64 / len as f64, self.reach(len));
        // Pixels whose filter reaches only padding are padding.
        let first = ((from as f64 - reach) / step - 0.5).floor() as i64 + 1;
        let end = ((to as f64 + reach) / step - 0.5).ceil() as i64;
        let start = -(start as f64);
        Self {
            start,
            step,
            low: 0,
            high: u32::try_from(part).unwrap_or(u32::MAX),
            len,
            from: first.clamp(0, len),
            to: end.clamp(0, len),
            flip: false,
        }
    }

    /// The pixels that show the image, as the steps see them.
    const fn seen(&self) -> (i64, i64) {
        if self.flip { (self.len - self.to, self.len - self.from) } else { (self.from, self.to) }
    }

    /// How far a filter reaches from the centre of one of `len` pixels, in pixels of the frame. Lanczos has the longest
    /// reach, 3.
    fn reach(&self, len: i64) -> f64 {
        3.0 * (self.len as f64 / len as f64).max(1.0)
    }

    pub(super) fn mirror(self) -> Self {
        Self { flip: !self.flip, ..self }
    }

    pub(super) fn axis(&self) -> Axis {
        let (from, to) = if self.from < self.to { (self.from as u32, self.to as u32) } else { (0, 0) };
        let (start, step) = (self.start as f32, self.step as f32);
        Axis { start, step, low: self.low, high: self.high, from, to, flip: u32::from(self.flip) }
    }
}

/// Height and width when the shorter side becomes `size`.
pub(super) fn shorter(height: i64, width: i64, size: i64) -> (i64, i64) {
    // Rounded down, but at least 1.
    if width <= height { ((size * height / width).max(1), size) } else { (size, (size * width / height).max(1)) }
}

/// Height and width with the same proportion. With `longest` 0 they cover the size, with 1 they fit into it. Both are
/// rounded, as in timm.
pub(super) fn keep_ratio([height, width]: [i64; 2], size: [u32; 2], longest: f64) -> [i64; 2] {
    let (down, across) = (height as f64 / f64::from(size[0]), width as f64 / f64::from(size[1]));
    let (most, least) = (down.max(across) * longest, down.min(across) * (1.0 - longest));
    [height, width].map(|side| ((side as f64 / (most + least)).round_ties_even() as i64).max(1))
}

/// Offset of a centre crop; negative if the image is smaller.
pub(super) fn centre(len: i64, crop: i64) -> i64 {
    // A smaller image is padded first, with half of the missing pixels, rounded down, before it.
    let before = (crop - len).max(0) / 2;
    let rest = (len - crop).max(0);
    // Python's round(): half a pixel is rounded to the even neighbour.
    let half = rest / 2;
    half + (rest & 1) * (half & 1) - before
}

/// Height and width of a crop with this part of the area and this width over height; `None` if it does not fit.
pub(super) fn part(height: i64, width: i64, part: f64, ratio: f64) -> Option<(i64, i64)> {
    let area = height as f64 * width as f64 * part;
    let (h, w) = ((area / ratio).sqrt().round_ties_even() as i64, (area * ratio).sqrt().round_ties_even() as i64);
    (0 < h && h <= height && 0 < w && w <= width).then_some((h, w))
}

/// The largest centred crop with an allowed width over height.
fn fallback(height: i64, width: i64, ratio: (f64, f64)) -> [i64; 4] {
    let have = width as f64 / height as f64;
    let (h, w) = if have < ratio.0 {
        ((width as f64 / ratio.0).round_ties_even() as i64, width)
    } else if have > ratio.1 {
        (height, (height as f64 * ratio.1).round_ties_even() as i64)
    } else {
        (height, width)
    };
    // A strip of one pixel could round to 0.
    let (h, w) = (h.clamp(1, height), w.clamp(1, width));
    [(height - h) / 2, (width - w) / 2, h, w]
}

/// Top, left, height and width of a random part: up to ten tries, then the fallback.
pub(super) fn random_part(
    height: i64,
    width: i64,
    scale: (f64, f64),
    ratio: (f64, f64),
    draws: &mut Draws,
) -> [i64; 4] {
    for _ in 0..10 {
        let area = draws.between(scale.0, scale.1);
        let proportion = draws.between(ratio.0.ln(), ratio.1.ln()).exp();
        if let Some((h, w)) = part(height, width, area, proportion) {
            return [offset(height, h, draws), offset(width, w, draws), h, w];
        }
    }
    fallback(height, width, ratio)
}

/// A random offset for `crop` of `len` pixels; `crop` must not be larger.
pub(super) fn offset(len: i64, crop: i64, draws: &mut Draws) -> i64 {
    draws.below((len - crop + 1) as u64) as i64
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Made with torchvision by `integration/golden/generate.py`.
    fn golden(key: &str) -> Vec<Value> {
        let mut all: Value =
            serde_json::from_str(include_str!("../../../../integration/golden/transforms.json")).unwrap();
        let list = all[key].as_array_mut().map(std::mem::take).unwrap();
        assert!(!list.is_empty());
        list
    }

    fn whole(value: &Value) -> Vec<i64> {
        value.as_array().unwrap().iter().map(|v| v.as_i64().unwrap()).collect()
    }

    #[test]
    fn the_shorter_side_rounds_as_torchvision_does() {
        for group in golden("resized_sizes") {
            let size = group["size"].as_i64().unwrap();
            for case in group["of"].as_array().unwrap() {
                let [h, w, out_h, out_w] = whole(case)[..] else { panic!("four numbers") };
                assert_eq!(shorter(h, w, size), (out_h, out_w), "{h}x{w} to {size}");
            }
        }
    }

    #[test]
    fn sides_of_one_proportion_round_as_timms_do() {
        // Made with timm 1.0's `ResizeKeepRatio.get_params`.
        let cases = [
            ([657, 281], [284, 213], 0.0, [498, 213]),
            ([779, 387], [284, 213], 0.0, [429, 213]),
            ([834, 727], [284, 213], 0.0, [284, 248]),
            ([881, 777], [284, 213], 0.0, [284, 250]),
            ([687, 562], [256, 256], 0.0, [313, 256]),
            ([49, 880], [256, 256], 0.0, [256, 4598]),
            ([496, 814], [256, 256], 0.0, [256, 420]),
            ([275, 684], [256, 256], 0.0, [256, 637]),
            ([73, 180], [256, 256], 1.0, [104, 256]),
            ([135, 400], [256, 256], 1.0, [86, 256]),
            ([500, 272], [256, 256], 1.0, [256, 139]),
            ([409, 576], [256, 256], 1.0, [182, 256]),
            ([124, 607], [235, 180], 0.5, [64, 311]),
            ([275, 33], [235, 180], 0.5, [406, 49]),
            ([768, 241], [235, 180], 0.5, [333, 105]),
            ([437, 306], [235, 180], 0.5, [246, 172]),
            ([206, 804], [7, 300], 1.0, [7, 27]),
            ([418, 183], [7, 300], 1.0, [7, 3]),
            ([800, 836], [7, 300], 1.0, [7, 7]),
            ([93, 162], [7, 300], 1.0, [7, 12]),
            ([100, 125], [50, 50], 0.0, [50, 62]),
            ([3, 4], [2, 2], 0.0, [2, 3]),
            ([200, 301], [100, 100], 0.0, [100, 150]),
            ([200, 303], [100, 100], 0.0, [100, 152]),
        ];
        for (have, size, longest, want) in cases {
            assert_eq!(keep_ratio(have, size, longest), want, "{have:?} to {size:?}, {longest}");
        }
    }

    #[test]
    fn centre_crops_lie_where_torchvision_puts_them() {
        for case in golden("center_crops") {
            let [h, w, crop_h, crop_w, top, left, pad_left, pad_top, _, _] = whole(&case)[..] else {
                panic!("ten numbers")
            };
            assert_eq!((centre(h, crop_h), centre(w, crop_w)), (top - pad_top, left - pad_left), "{case}");
        }
    }

    #[test]
    fn drawn_parts_have_the_size_torchvision_gives_them() {
        for case in golden("crop_draws") {
            let f = |i: usize| case[i].as_f64().unwrap();
            let expected = case[4].as_i64().zip(case[5].as_i64());
            assert_eq!(part(f(0) as i64, f(1) as i64, f(2), f(3)), expected, "{case}");
        }
    }

    #[test]
    fn parts_that_never_fit_fall_back_as_in_torchvision() {
        for group in golden("crop_fallbacks") {
            let ratio = (group["ratio"][0].as_f64().unwrap(), group["ratio"][1].as_f64().unwrap());
            for case in group["of"].as_array().unwrap() {
                let [h, w, top, left, crop_h, crop_w] = whole(case)[..] else { panic!("six numbers") };
                // torchvision may give an empty crop, which its resize then refuses.
                if crop_h > 0 && crop_w > 0 {
                    assert_eq!(fallback(h, w, ratio), [top, left, crop_h, crop_w], "{case} of {ratio:?}");
                }
                let mut draws = infeed_core::random::SampleRng::new(0, 0, 0).op(0);
                let [top, left, crop_h, crop_w] = random_part(h, w, (1e6, 1e6), ratio, &mut draws);
                assert!(crop_h > 0 && crop_w > 0 && top + crop_h <= h && left + crop_w <= w);
            }
        }
    }

    #[test]
    fn random_parts_keep_to_area_proportion_and_image() {
        let mut places = std::collections::HashSet::new();
        for record in 0..2000 {
            let mut draws = infeed_core::random::SampleRng::new(3, 1, record).op(0);
            let [top, left, h, w] = random_part(375, 500, (0.08, 1.0), (0.75, 4.0 / 3.0), &mut draws);
            assert!(top >= 0 && left >= 0 && top + h <= 375 && left + w <= 500);
            let (area, ratio) = ((h * w) as f64 / (375.0 * 500.0), w as f64 / h as f64);
            assert!((0.078..1.01).contains(&area) && (0.73..1.37).contains(&ratio), "{h}x{w}");
            places.insert((top, left));
        }
        assert!(places.len() > 1500);
    }

    #[test]
    fn crops_of_a_flipped_frame_are_those_of_the_flipped_image() {
        // Pixels 0..10, flipped: 9 8 7 6 5 4 3 2 1 0; cropped at 2, 5 long: 7 6 5 4 3.
        let axis = Frame::whole(10).mirror().crop(2, 5).axis();
        assert_eq!((axis.start, axis.flip), (3.0, 1));
        // Then 3 of padding in front: - - - 7 6, flipped back: 6 7 - - -.
        let axis = Frame::whole(10).mirror().crop(2, 5).crop(-3, 5).axis();
        assert_eq!((axis.start, axis.from, axis.to), (6.0, 0, 2));
    }
}
