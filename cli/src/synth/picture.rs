//! Pictures that look like photographs to a codec: noise with equal contrast in every octave (the 1/f spectrum of
//! natural scenes, [Field 1987](https://doi.org/10.1364/JOSAA.4.002379)), smooth and busy regions, and sharp edges.

use infeed::dataset::Draws;

/// Interleaved 8-bit RGB.
#[derive(Debug)]
pub(super) struct Picture {
    pub width: usize,
    pub height: usize,
    pub rgb: Vec<u8>,
}

/// What a picture shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Colour of the largest shape, as an angle in turns: what tells the class.
    pub hue: f32,
    /// Contrast of the finest octaves; decides the bytes per pixel of the encoded file.
    pub detail: f32,
}

/// One channel at some resolution.
struct Plane {
    width: usize,
    height: usize,
    values: Vec<f32>,
}

/// An ellipse of one colour and its own contrast.
struct Shape {
    x: f32,
    y: f32,
    radius_x: f32,
    radius_y: f32,
    paint: Paint,
}

#[derive(Clone, Copy)]
struct Paint {
    luma: f32,
    blue: f32,
    red: f32,
    contrast: f32,
}

impl Picture {
    /// Draws a picture.
    pub(super) fn draw(width: usize, height: usize, look: Look, draws: &mut Draws) -> Self {
        // 1.3 an octave: a little steeper than 1/f, as photographs are after a lens.
        let luma = Plane::noise(width, height, draws, |octave| match octave {
            0 => 7.0 * look.detail,
            1 => 9.0 * look.detail.sqrt(),
            _ => 8.0 * 1.3f32.powi(octave),
        });
        // Colour is coarser than light: cameras interpolate it, eyes don't mind.
        let half = (width.div_ceil(2), height.div_ceil(2));
        let mut chroma = || {
            let coarse = Plane::noise(half.0, half.1, draws, |octave| 1.6 * look.detail.sqrt() * 1.3f32.powi(octave));
            coarse.doubled(width, height)
        };
        let (blue, red) = (chroma(), chroma());
        let (ground, shapes) = Self::scene(width, height, look, draws);

        let mut rgb = Vec::with_capacity(width * height * 3);
        let mut paints = vec![ground; width];
        for y in 0..height {
            // Darker towards the bottom, as under a sky.
            let shade = 24.0 * (0.5 - y as f32 / height as f32);
            paints.fill(Paint { luma: ground.luma + shade, ..ground });
            for shape in &shapes {
                let (from, to) = shape.span(y, width);
                paints[from..to].fill(shape.paint);
            }
            for (x, paint) in paints.iter().enumerate() {
                let at = y * width + x;
                let l = paint.luma + paint.contrast * luma.values[at];
                let b = paint.blue + blue.values[at];
                let r = paint.red + red.values[at];
                // JPEG's own colour space (ITU-R BT.601); the cast saturates.
                rgb.extend([l + 1.402 * r, l - 0.344 * b - 0.714 * r, l + 1.772 * b].map(|v| v as u8));
            }
        }
        Self { width, height, rgb }
    }

    fn scene(width: usize, height: usize, look: Look, draws: &mut Draws) -> (Paint, Vec<Shape>) {
        let mut paint = |hue: f32, saturation: f32| {
            let (sin, cos) = (hue * std::f32::consts::TAU).sin_cos();
            Paint {
                luma: draws.between(60.0, 190.0) as f32,
                blue: saturation * cos,
                red: saturation * sin,
                contrast: draws.between(0.3, 1.3) as f32,
            }
        };
        let ground = paint(look.hue + 0.5, 18.0);
        let count = 6;
        let paints: Vec<Paint> = (0..count)
            .map(|i| if i == 0 { paint(look.hue, 42.0) } else { paint(look.hue + i as f32 * 0.37, 25.0) })
            .collect();
        let (w, h) = (width as f32, height as f32);
        let shape = |(i, paint)| {
            // The first is the subject: large and near the middle.
            let (place, size) = if i == 0 { ((0.35, 0.65), (0.22, 0.4)) } else { ((0.0, 1.0), (0.03, 0.2)) };
            Shape {
                x: w * draws.between(place.0, place.1) as f32,
                y: h * draws.between(place.0, place.1) as f32,
                radius_x: w * draws.between(size.0, size.1) as f32,
                radius_y: h * draws.between(size.0, size.1) as f32,
                paint,
            }
        };
        (ground, paints.into_iter().enumerate().map(shape).collect())
    }

    /// BT.601 luma of every pixel.
    pub(super) fn gray(&self) -> Vec<u8> {
        self.rgb
            .chunks_exact(3)
            .map(|p| ((u32::from(p[0]) * 77 + u32::from(p[1]) * 150 + u32::from(p[2]) * 29) >> 8) as u8)
            .collect()
    }

    /// Ink for every pixel, black taken out of the other three.
    pub(super) fn cmyk(&self) -> Vec<u8> {
        let ink = |p: &[u8]| {
            let most = p[0].max(p[1]).max(p[2]);
            [most - p[0], most - p[1], most - p[2], 255 - most]
        };
        self.rgb.chunks_exact(3).flat_map(ink).collect()
    }
}

impl Shape {
    /// Columns of row `y` that lie inside.
    fn span(&self, y: usize, width: usize) -> (usize, usize) {
        let dy = (y as f32 - self.y) / self.radius_y;
        let half = self.radius_x * (1.0 - dy * dy).max(0.0).sqrt();
        let clamp = |x: f32| (x.max(0.0) as usize).min(width);
        (clamp(self.x - half), clamp(self.x + half))
    }
}

impl Plane {
    /// Noise of all octaves that fit; `amplitude(0)` belongs to single pixels. Each octave costs a quarter of the
    /// finer one.
    fn noise(width: usize, height: usize, draws: &mut Draws, amplitude: impl Fn(i32) -> f32) -> Self {
        // 7: from single pixels to 64, where shapes take over.
        let octaves = 7.min(usize::BITS - width.min(height).leading_zeros()) as i32;
        let mut plane = Self { width: 1, height: 1, values: vec![0.0] };
        let mut noise = Xorshift(draws.bits() as u32 | 1);
        for octave in (0..octaves).rev() {
            plane = plane.doubled(width.div_ceil(1 << octave), height.div_ceil(1 << octave));
            let amplitude = amplitude(octave);
            plane.values.iter_mut().for_each(|value| *value += amplitude * noise.signed());
        }
        plane
    }

    /// Twice as large (cut to `width` × `height`), linearly interpolated.
    fn doubled(&self, width: usize, height: usize) -> Self {
        let mut values = Vec::with_capacity(width * height);
        let mut mixed = vec![0.0; self.width];
        for y in 0..height {
            let (near, far) = neighbours(y, self.height);
            let (near, far) =
                (&self.values[near * self.width..][..self.width], &self.values[far * self.width..][..self.width]);
            for ((out, near), far) in mixed.iter_mut().zip(near).zip(far) {
                *out = 0.75 * near + 0.25 * far;
            }
            values.extend((0..width).map(|x| {
                let (near, far) = neighbours(x, self.width);
                0.75 * mixed[near] + 0.25 * mixed[far]
            }));
        }
        Self { width, height, values }
    }
}

/// The two coarse cells around a fine one, the nearer first.
fn neighbours(fine: usize, coarse_len: usize) -> (usize, usize) {
    let near = (fine / 2).min(coarse_len - 1);
    let far = if fine % 2 == 1 { near + 1 } else { near.saturating_sub(1) };
    (near, far.min(coarse_len - 1))
}

/// [Marsaglia 2003](https://doi.org/10.18637/jss.v008.i14): a pixel's noise needs no better, and it takes a nanosecond.
struct Xorshift(u32);

impl Xorshift {
    /// Uniform in `[-1, 1)`.
    fn signed(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        (self.0 as i32) as f32 * (1.0 / 2_147_483_648.0)
    }
}

#[cfg(test)]
mod tests {
    use infeed::dataset::SampleRng;

    use super::*;

    fn draw(width: usize, height: usize, detail: f32) -> Picture {
        Picture::draw(width, height, Look { hue: 0.2, detail }, &mut SampleRng::new(1, 0, 2).op(0))
    }

    #[test]
    fn a_picture_of_any_size_is_whole() {
        for (width, height) in [(1, 1), (1, 9), (17, 2), (100, 75)] {
            assert_eq!(draw(width, height, 1.0).rgb.len(), width * height * 3);
        }
    }

    #[test]
    fn detail_is_contrast_between_neighbours() {
        let roughness = |detail| -> u64 {
            let gray = draw(120, 90, detail).gray();
            gray.windows(2).map(|w| u64::from(w[0].abs_diff(w[1]))).sum()
        };
        assert!(roughness(2.0) > 2 * roughness(0.2));
    }

    #[test]
    fn ink_gives_back_the_colour() {
        let picture = draw(8, 8, 1.0);
        for (rgb, ink) in picture.rgb.chunks_exact(3).zip(picture.cmyk().chunks_exact(4)) {
            for channel in 0..3 {
                assert_eq!(255 - ink[3] - ink[channel], rgb[channel]);
            }
        }
    }
}
