//! Class folders of photographs, like those of ImageNet and Caltech-256.

use infeed::dataset::{Draws, SampleRng};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::{
    files::Files,
    picture::{Look, Picture},
    plan::Plan,
};
use crate::{args::SynthKind, failure::Failure, rgb_png};

/// Images, assigned to classes in turn.
#[derive(Debug)]
pub(super) struct Folder {
    plan: Plan,
}

/// How one picture is made. The odd files of ImageNet are at fixed places, so that a small set can be checked for them.
struct Recipe {
    width: usize,
    height: usize,
    quality: u8,
    detail: f32,
    kind: ImageKind,
    progressive: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ImageKind {
    Gray,
    Color444,
    Color420,
    Cmyk,
    Png,
}

impl Folder {
    pub(super) const fn new(plan: Plan) -> Self {
        Self { plan }
    }

    fn draws(&self, index: usize, op: u32) -> Draws {
        let kind = match self.plan.kind {
            SynthKind::Caltech => 2,
            _ => 1,
        };
        SampleRng::new(self.plan.seed, kind, index as u64).op(op)
    }

    fn recipe(&self, index: usize) -> Recipe {
        let mut draws = self.draws(index, 0);
        match self.plan.kind {
            SynthKind::Caltech => caltech(&mut draws),
            _ => imagenet(index, &mut draws),
        }
    }

    /// Class, and number within the class.
    fn place(&self, index: usize) -> (u64, u64) {
        (index as u64 % self.plan.classes, index as u64 / self.plan.classes)
    }
}

/// Measured on 250 photographs of ImageNet: 194,000 pixels and 105 KB on average, a third of them 500×375; 74 % are
/// 4:4:4, 24 % 4:2:0, 2 % gray; three in five were saved with quality 96, one in five with 75. The real set has one PNG
/// and 22 CMYK among 1.3 million; we have one of each in a thousand.
fn imagenet(index: usize, draws: &mut Draws) -> Recipe {
    let long = draws.unit();
    let (width, height) = match draws.unit() {
        u if u < 0.28 => (500, 375),
        u if u < 0.38 => (500, 333),
        u if u < 0.45 => (375, 500),
        u if u < 0.50 => (333, 500),
        u if u < 0.53 => (600, 450),
        u if u < 0.69 => (500, 260 + (long * 220.0) as usize),
        u if u < 0.73 => (300 + (long * 150.0) as usize, 500),
        u if u < 0.86 => (110 + (long * 300.0) as usize, 90 + (draws.unit() * 250.0) as usize),
        u if u < 0.955 => (640, 480),
        u if u < 0.985 => (800, 600),
        u if u < 0.997 => (1024, 768),
        _ => (1600, 1200),
    };
    let quality = match draws.unit() {
        u if u < 0.62 => 96,
        u if u < 0.80 => 85 + (draws.unit() * 10.0) as u8,
        _ => 75,
    };
    let kind = match (index % 1000, draws.unit()) {
        (123, _) => ImageKind::Png,
        (456, _) => ImageKind::Cmyk,
        (_, u) if u < 0.02 => ImageKind::Gray,
        (_, u) if u < 0.26 => ImageKind::Color420,
        _ => ImageKind::Color444,
    };
    // Found by trials: 0.55 bytes per pixel, nine tenths of files between 0.15 and 1.0, as in the real set.
    let detail = 0.65 * 8f32.powf(draws.unit());
    Recipe { width, height, quality, detail, kind, progressive: draws.unit() < 0.01 }
}

/// Caltech-256 was gathered from image search: smaller, mostly 4:2:0 at middling quality, 39 KB on average, some gray.
fn caltech(draws: &mut Draws) -> Recipe {
    let width = 200 + (draws.unit() * 340.0) as usize;
    let height = (width as f32 * (0.6 + 0.6 * draws.unit())) as usize;
    let quality = 75 + (draws.unit() * 18.0) as u8;
    let kind = match draws.unit() {
        u if u < 0.03 => ImageKind::Gray,
        u if u < 0.80 => ImageKind::Color420,
        _ => ImageKind::Color444,
    };
    Recipe { width, height, quality, detail: 0.65 * 8f32.powf(draws.unit()), kind, progressive: draws.unit() < 0.02 }
}

impl Files for Folder {
    fn len(&self) -> usize {
        self.plan.count as usize
    }

    fn path(&self, index: usize) -> String {
        let (class, number) = self.place(index);
        match self.plan.kind {
            SynthKind::Caltech => {
                let name = caltech_class(class);
                format!("{:03}.{name}/{:03}_{:04}.jpg", class + 1, class + 1, number + 1)
            }
            _ => {
                let synset = synset(class);
                // Numbers of the real set have gaps and no leading zeros.
                let number = number * 7 + self.draws(index, 2).below(7);
                format!("{synset}/{synset}_{number}.JPEG")
            }
        }
    }

    fn bytes(&self, index: usize) -> Result<Vec<u8>, Failure> {
        let recipe = self.recipe(index);
        let (class, _) = self.place(index);
        // The golden ratio spreads the hues of any number of classes.
        let look = Look { hue: class as f32 * 0.618_034 % 1.0, detail: recipe.detail };
        let picture = Picture::draw(recipe.width, recipe.height, look, &mut self.draws(index, 1));
        recipe.encode(&picture)
    }
}

impl Recipe {
    fn encode(&self, picture: &Picture) -> Result<Vec<u8>, Failure> {
        let failed = |error: &dyn std::error::Error| Failure::Failed(format!("cannot encode a picture: {error}"));
        if self.kind == ImageKind::Png {
            let encoded = rgb_png::encode(&picture.rgb, picture.width as u32, picture.height as u32);
            return encoded.map_err(|error| failed(&error));
        }
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, self.quality);
        encoder.set_progressive(self.progressive);
        encoder.set_sampling_factor(if self.kind == ImageKind::Color420 {
            SamplingFactor::F_2_2
        } else {
            SamplingFactor::F_1_1
        });
        let (width, height) = (picture.width as u16, picture.height as u16);
        let encoded = match self.kind {
            ImageKind::Gray => encoder.encode(&picture.gray(), width, height, ColorType::Luma),
            ImageKind::Cmyk => encoder.encode(&picture.cmyk(), width, height, ColorType::Cmyk),
            _ => encoder.encode(&picture.rgb, width, height, ColorType::Rgb),
        };
        encoded.map(|()| bytes).map_err(|error| failed(&error))
    }
}

/// ImageNet's names run from n01440764 to n15075141 in ascending order; ours take equal steps.
fn synset(class: u64) -> String {
    format!("n{:08}", 1_440_764 + class * 13_647)
}

/// Names in the style of Caltech-256, whose last class is clutter.
fn caltech_class(class: u64) -> String {
    const FIRST: [&str; 8] =
        ["ak47", "american-flag", "backpack", "baseball-bat", "baseball-glove", "basketball-hoop", "bat", "bathtub"];
    match FIRST.get(class as usize) {
        Some(name) => (*name).into(),
        None if class == 256 => "clutter".into(),
        None => format!("object-{:03}", class + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(kind: SynthKind) -> Folder {
        Folder::new(Plan { kind, count: 2000, classes: 10, seed: 1, side: 144, raw: false })
    }

    #[test]
    fn names_are_distinct_and_in_the_style_of_the_real_set() {
        for (kind, first) in
            [(SynthKind::Imagenet, "n01440764/n01440764_"), (SynthKind::Caltech, "001.ak47/001_0001.jpg")]
        {
            let folder = folder(kind);
            let mut paths: Vec<_> = (0..folder.len()).map(|i| folder.path(i)).collect();
            assert!(paths[0].starts_with(first), "{}", paths[0]);
            paths.sort();
            paths.dedup();
            assert_eq!(paths.len(), 2000);
        }
    }

    #[test]
    fn sizes_and_kinds_follow_the_measured_spread() {
        let folder = folder(SynthKind::Imagenet);
        let recipes: Vec<_> = (0..2000).map(|i| folder.recipe(i)).collect();
        let mean = recipes.iter().map(|r| r.width * r.height).sum::<usize>() / recipes.len();
        assert!((175_000..215_000).contains(&mean), "{mean} pixels on average; the real set has 194,000");
        let share = |kind| recipes.iter().filter(|r| r.kind == kind).count();
        assert_eq!((share(ImageKind::Png), share(ImageKind::Cmyk)), (2, 2));
        assert!((1400..1560).contains(&share(ImageKind::Color444)), "{} of 2000 are 4:4:4", share(ImageKind::Color444));
        assert!((20..60).contains(&share(ImageKind::Gray)), "{} of 2000 are gray", share(ImageKind::Gray));
    }
}
