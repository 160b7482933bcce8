//! CIFAR-10 and CIFAR-100 in their official binary layout, with classes that a small network can learn.

use infeed::dataset::SampleRng;

use super::{files::Files, plan::Plan};
use crate::{args::SynthKind, failure::Failure};

const SIDE: usize = 32;

const CIFAR10: [&str; 10] = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Coarse classes with their five fine ones. Fine labels are numbered alphabetically over all, as in the real set.
const CIFAR100: [(&str, [&str; 5]); 20] = [
    ("aquatic_mammals", ["beaver", "dolphin", "otter", "seal", "whale"]),
    ("fish", ["aquarium_fish", "flatfish", "ray", "shark", "trout"]),
    ("flowers", ["orchid", "poppy", "rose", "sunflower", "tulip"]),
    ("food_containers", ["bottle", "bowl", "can", "cup", "plate"]),
    ("fruit_and_vegetables", ["apple", "mushroom", "orange", "pear", "sweet_pepper"]),
    ("household_electrical_devices", ["clock", "keyboard", "lamp", "telephone", "television"]),
    ("household_furniture", ["bed", "chair", "couch", "table", "wardrobe"]),
    ("insects", ["bee", "beetle", "butterfly", "caterpillar", "cockroach"]),
    ("large_carnivores", ["bear", "leopard", "lion", "tiger", "wolf"]),
    ("large_man-made_outdoor_things", ["bridge", "castle", "house", "road", "skyscraper"]),
    ("large_natural_outdoor_scenes", ["cloud", "forest", "mountain", "plain", "sea"]),
    ("large_omnivores_and_herbivores", ["camel", "cattle", "chimpanzee", "elephant", "kangaroo"]),
    ("medium_mammals", ["fox", "porcupine", "possum", "raccoon", "skunk"]),
    ("non-insect_invertebrates", ["crab", "lobster", "snail", "spider", "worm"]),
    ("people", ["baby", "boy", "girl", "man", "woman"]),
    ("reptiles", ["crocodile", "dinosaur", "lizard", "snake", "turtle"]),
    ("small_mammals", ["hamster", "mouse", "rabbit", "shrew", "squirrel"]),
    ("trees", ["maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"]),
    ("vehicles_1", ["bicycle", "bus", "motorcycle", "pickup_truck", "train"]),
    ("vehicles_2", ["lawn_mower", "rocket", "streetcar", "tank", "tractor"]),
];

/// The files of one set: records, then names.
#[derive(Debug)]
pub(super) struct Cifar {
    seed: u64,
    hundred: bool,
    files: Vec<(&'static str, Content)>,
}

#[derive(Debug)]
enum Content {
    /// Records `from..to`.
    Records(u64, u64),
    Names(Vec<&'static str>),
}

impl Cifar {
    /// `plan.count` training records, and a fifth as many to test with, as in the real sets.
    pub(super) fn new(plan: Plan) -> Self {
        let train = plan.count;
        let test = Content::Records(train, train + train.div_ceil(5));
        let hundred = plan.kind == SynthKind::Cifar100;
        let files = if hundred {
            let coarse = CIFAR100.iter().map(|(name, _)| *name).collect();
            let fine = fine_labels().into_iter().map(|(name, _)| name).collect();
            vec![
                ("train.bin", Content::Records(0, train)),
                ("test.bin", test),
                ("coarse_label_names.txt", Content::Names(coarse)),
                ("fine_label_names.txt", Content::Names(fine)),
            ]
        } else {
            let names =
                ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];
            // No empty files when there are fewer than five records.
            let parts = train.min(5);
            let part = |i| Content::Records(train * i / parts, train * (i + 1) / parts);
            let mut files: Vec<_> = (0..parts).map(|i| (names[i as usize], part(i))).collect();
            files.extend([("test_batch.bin", test), ("batches.meta.txt", Content::Names(CIFAR10.to_vec()))]);
            files
        };
        Self { seed: plan.seed, hundred, files }
    }

    fn record(&self, index: u64, coarse_of: &[(&str, u8)], out: &mut Vec<u8>) {
        let rng = SampleRng::new(self.seed, if self.hundred { 100 } else { 10 }, index);
        let mut draws = rng.op(0);
        if self.hundred {
            let fine = draws.below(100) as u8;
            let coarse = coarse_of[usize::from(fine)].1;
            out.extend([coarse, fine]);
            // Coarse classes differ in colour, the five fine ones of each in pattern.
            let within = coarse_of[..usize::from(fine)].iter().filter(|(_, c)| *c == coarse).count();
            pixels(f32::from(coarse) / 20.0, within as f32 / 5.0, &mut draws, out);
        } else {
            let label = draws.below(10) as u8;
            out.push(label);
            pixels(f32::from(label % 5) / 5.0, f32::from(label) / 10.0, &mut draws, out);
        }
    }
}

/// Fine names in alphabetical order with their coarse label.
fn fine_labels() -> Vec<(&'static str, u8)> {
    let mut labels: Vec<_> =
        CIFAR100.iter().zip(0..).flat_map(|((_, fine), coarse)| fine.iter().map(move |name| (*name, coarse))).collect();
    labels.sort_unstable();
    labels
}

/// Stripes of the class's colour and pitch, at a random phase and brightness, under noise: no single pixel tells the
/// class, and a mirror image keeps it.
fn pixels(hue: f32, pattern: f32, draws: &mut infeed::dataset::Draws, out: &mut Vec<u8>) {
    use std::f32::consts::{PI, TAU};
    let pitch = 0.25 + 0.6 * pattern;
    // Steeper for higher patterns; between upright and lying, so that a flip changes the slope's sign alone.
    let (sin, cos) = (pattern * PI / 2.0).sin_cos();
    let mut between = |low, high| draws.between(low, high) as f32;
    let (phase, light, strength) = (between(0.0, std::f64::consts::TAU), between(90.0, 165.0), between(25.0, 60.0));
    let tint = [0.0, 1.0 / 3.0, 2.0 / 3.0].map(|offset| 30.0 * ((hue + offset) * TAU).cos());
    for channel in tint {
        for y in 0..SIDE {
            // One draw gives four bytes of noise.
            for x in (0..SIDE).step_by(4) {
                let noise = (draws.bits() as u32).to_le_bytes();
                out.extend(noise.iter().zip(x..).map(|(noise, x)| {
                    let wave = (pitch * (x as f32 * cos + y as f32 * sin) + phase).sin();
                    (light + channel + strength * wave + (f32::from(*noise) - 127.5) * 0.35) as u8
                }));
            }
        }
    }
}

impl Files for Cifar {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn path(&self, index: usize) -> String {
        self.files[index].0.into()
    }

    fn bytes(&self, index: usize) -> Result<Vec<u8>, Failure> {
        match &self.files[index].1 {
            // The official files end with an empty line.
            Content::Names(names) => Ok(format!("{}\n\n", names.join("\n")).into_bytes()),
            Content::Records(from, to) => {
                let coarse_of = fine_labels();
                let mut bytes = Vec::with_capacity(((to - from) as usize).saturating_mul(SIDE * SIDE * 3 + 2));
                (*from..*to).for_each(|record| self.record(record, &coarse_of, &mut bytes));
                Ok(bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cifar(kind: SynthKind, count: u64) -> Cifar {
        Cifar::new(Plan { kind, count, classes: 10, seed: 3, side: 144, raw: false })
    }

    #[test]
    fn records_have_the_official_length_and_add_up_to_the_count() {
        for (kind, record, train) in [(SynthKind::Cifar10, 3073, 5), (SynthKind::Cifar100, 3074, 1)] {
            let set = cifar(kind, 12);
            let lens: Vec<_> = (0..train).map(|i| set.bytes(i).unwrap().len()).collect();
            assert!(lens.iter().all(|len| len % record == 0), "{lens:?}");
            assert_eq!(lens.iter().sum::<usize>(), 12 * record);
            assert_eq!(set.bytes(train).unwrap().len(), 3 * record);
        }
    }

    #[test]
    fn few_records_make_few_files() {
        let names: Vec<_> = cifar(SynthKind::Cifar10, 2).files.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["data_batch_1.bin", "data_batch_2.bin", "test_batch.bin", "batches.meta.txt"]);
    }

    #[test]
    fn fine_labels_belong_to_their_coarse_label() {
        let set = cifar(SynthKind::Cifar100, 200);
        let fine = fine_labels();
        assert_eq!((fine.len(), fine[0], fine[99]), (100, ("apple", 4), ("worm", 13)));
        for record in set.bytes(0).unwrap().chunks_exact(3074) {
            assert_eq!(fine[usize::from(record[1])].1, record[0]);
        }
    }
}
