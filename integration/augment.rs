//! Augmentations: what is drawn, that it is drawn alike for pictures and masks and whoever makes the rows, and what is
//! refused. What each step does to pixels is tested where it is done, against torchvision.

use std::{collections::HashMap, sync::Arc};

use infeed::{
    DType, ErrorKind, Layout, Loader, Transform,
    dataset::{Dataset, FieldKind, ImageInfo, MemoryDataset, SampleRng},
    spi::{Decoded, Drawn, PixelOp, Pixels, RowMaker, Sampling},
    transform::{
        Interpolation, Op,
        augment::{
            AugMix, AutoAugment, ColorJitter, Erasing, GaussianBlur, KernelSize, Noise, Policy, RandAugment,
            RandomAffine, RandomChoice, RandomErasing, RandomPerspective, RandomPhotometricDistort, RandomRotation,
            Shear, Spread, TimmRandAugment, TrivialAugmentWide, Value,
        },
    },
};
use proptest::prelude::*;

const RGB: FieldKind = FieldKind::Image { channels: 3, size: None, dtype: None };

fn pixels(info: &ImageInfo, seed: u64) -> Vec<u8> {
    let mut draws = SampleRng::new(seed, 0, 0).op(0);
    // Smooth here and rough there.
    (0..info.len_bytes()).map(|i| ((i / 7 * 3) as u8).wrapping_add((draws.bits() & 31) as u8)).collect()
}

fn drawn(transform: &Transform, info: &ImageInfo, record: u64) -> Drawn {
    transform.lower(&RGB, DType::F32, Layout::Nchw).unwrap().draw(info, SampleRng::new(7, 1, record)).unwrap()
}

fn row(
    transform: &Transform,
    field: &FieldKind,
    how: (DType, Layout),
    info: ImageInfo,
    data: &[u8],
    n: u64,
) -> Vec<u8> {
    let lowered = transform.lower(field, how.0, how.1).unwrap();
    let drawn = lowered.draw(&info, SampleRng::new(7, 1, n)).unwrap();
    let mut out = vec![0xa5; lowered.row().len_bytes()];
    let src = Pixels { info, rows: 0..info.height, data };
    RowMaker::new().run(&lowered, &drawn, Decoded::Pixels(&src), &mut out).unwrap();
    out
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&v| f32::from_ne_bytes(v)).collect()
}

/// The steps that were drawn, by name, without their numbers.
fn name(op: &PixelOp) -> String {
    format!("{op:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned()
}

/// Every augmentation with settings that differ from the usual.
fn all_steps() -> Vec<Op> {
    let jitter = Op::from(ColorJitter { hue: Spread::Within([-0.1, 0.2]), ..ColorJitter::default() });
    let t = Transform::new()
        .color_jitter(0.4, [0.5, 1.5], 0.4, 0.1)
        .random_grayscale(0.2)
        .grayscale(3)
        .gaussian_blur(5)
        .random_solarize(0.5, 0.3)
        .random_posterize(3, 0.4)
        .random_equalize(0.5)
        .random_autocontrast(0.5)
        .random_invert(0.1)
        .random_adjust_sharpness(2.0, 0.5)
        .random_channel_permutation()
        .random_photometric_distort()
        .random_rotation(30.0)
        .random_perspective(0.4, 0.6)
        .rand_augment(3, 12)
        .timm_rand_augment(7.0)
        .trivial_augment_wide()
        .auto_augment(Policy::Svhn)
        .aug_mix()
        .three_augment()
        .random_apply(&Transform::new().color_jitter(0.1, 0.0, 0.0, 0.5).random_invert(0.5), 0.8)
        .random_choice(&Transform::new().gaussian_blur(3).random_rotation([10.0, 20.0]))
        .random_order(&Transform::new().push(jitter).random_posterize(2, 1.0))
        .push(RandomAffine {
            translate: Some([0.1, 0.2]),
            scale: Some([0.8, 1.2]),
            shear: Some(Shear::Both([-5.0, 5.0, -3.0, 3.0])),
            interpolation: Sampling::Bilinear,
            fill: Some(Value::Each(vec![0.1, 0.2, 0.3])),
            center: Some([3.0, 4.0]),
            ..RandomAffine::new(15.0)
        })
        .push(GaussianBlur { kernel_size: KernelSize::Both([3, 5]), sigma: [1.0, 1.0], p: 0.5 })
        .random_erasing(0.7);
    t.ops().to_vec()
}

#[test]
fn every_augmentation_is_data() {
    for op in all_steps() {
        let t = Transform::new().push(op);
        let json = serde_json::to_string(&t).unwrap();
        assert_eq!(serde_json::from_str::<Transform>(&json).unwrap(), t, "{json}");
        // An op with its usual settings is its name.
        let toml = toml::to_string(&HashMap::from([("transform", &t)])).unwrap();
        assert_eq!(toml::from_str::<HashMap<String, Transform>>(&toml).unwrap()["transform"], t, "{toml}");
    }
    let short = r#"[{"op": "center_crop", "size": 8}, {"op": "rand_augment"}, {"op": "trivial_augment_wide"}, {"op": "aug_mix"},
        {"op": "auto_augment"}, {"op": "color_jitter", "hue": 0.1}, {"op": "random_erasing", "value": "random"},
        {"op": "random_perspective"}, {"op": "random_photometric_distort"}, {"op": "timm_rand_augment"}]"#;
    let short: Transform = serde_json::from_str(short).unwrap();
    let written = Transform::new()
        .center_crop(8)
        .rand_augment(2, 9)
        .trivial_augment_wide()
        .aug_mix()
        .auto_augment(Policy::Imagenet)
        .color_jitter(0.0, 0.0, 0.0, 0.1)
        .random_erasing_noise(0.5)
        .push(RandomPerspective::default())
        .push(RandomPhotometricDistort::default())
        .push(TimmRandAugment::default());
    assert_eq!(short, written);
    let refused = |json: &str| serde_json::from_str::<Transform>(json).unwrap_err().to_string();
    assert!(refused(r#"[{"op": "rand_augment", "magnitud": 3}]"#).contains("magnitud"));
    assert!(refused(r#"[{"op": "color_jitter", "hue": "much"}]"#).contains("a number, or [least, most]"));
    assert!(refused(r#"[{"op": "auto_augment", "policy": "mnist"}]"#).contains("unknown variant `mnist`"));
}

#[test]
fn a_line_of_steps_is_a_transform() {
    let t = Transform::new;
    let same = |line: &str, want: Transform| assert_eq!(line.parse::<Transform>().unwrap(), want, "{line}");
    same("", t());
    same("none", t());
    same("cifar-val", Transform::preset("cifar-val").unwrap());
    same("resize_shorter:232; center_crop:224;", t().resize_shorter(232).center_crop(224));
    same("resize_exact:220/224", t().resize_exact(220, 224));
    same("random_crop:32,4;cutout:8", t().random_crop(32, 4).cutout(8));
    let crop = serde_json::json!({"op": "random_resized_crop", "size": 96, "scale": [0.05, 0.4]});
    let crop = serde_json::from_value::<Op>(crop).unwrap();
    same("random_resized_crop:96,bicubic", t().random_resized_crop(96).interpolation(Interpolation::Bicubic));
    same("resize_shorter:232,nearest_exact", t().resize_shorter(232).interpolation(Interpolation::NearestExact));
    same("random_resized_crop:96,random,antialias=true", {
        t().random_resized_crop(96).interpolation_among([Interpolation::Bilinear, Interpolation::Bicubic])
    });
    same("random_resized_crop:96,0.05/0.4", t().push(crop));
    same("rand_augment:3,5,interpolation=bilinear", {
        t().push(RandAugment { num_ops: 3, magnitude: 5, interpolation: Sampling::Bilinear, ..RandAugment::default() })
    });
    same("trivial_augment_wide:bilinear", {
        t().push(TrivialAugmentWide { interpolation: Sampling::Bilinear, ..TrivialAugmentWide::default() })
    });
    same("auto_augment:cifar10", t().auto_augment(Policy::Cifar10));
    same("color_jitter:0.4,0.4,0.2,-0.1/0.1", t().color_jitter(0.4, 0.4, 0.2, [-0.1, 0.1]));
    same("random_erasing:0.25,random;normalize:cifar10", {
        let noise = RandomErasing { p: 0.25, value: Erasing::Noise(Noise::Random), ..RandomErasing::default() };
        t().push(noise).normalize(infeed::CIFAR10_MEAN, infeed::CIFAR10_STD)
    });
    same("random_apply:(color_jitter:0.4,0.4,0.2,0.1;random_grayscale:0.2),p=0.8", {
        t().random_apply(&t().color_jitter(0.4, 0.4, 0.2, 0.1).random_grayscale(0.2), 0.8)
    });
    same("random_choice:(random_solarize:0.5,1;gaussian_blur:5),[1, 2]", {
        let transforms = t().random_solarize(0.5, 1.0).gaussian_blur(5).ops().to_vec();
        t().push(RandomChoice { transforms, p: Some(vec![1.0, 2.0]) })
    });
    for line in
        ["random_order:(random_invert;random_equalize:1)", "random_order:transforms=(random_invert;random_equalize:1)"]
    {
        same(line, t().random_order(&t().random_invert(0.5).random_equalize(1.0)));
    }
    let nested = "center_crop:8;random_order:(random_apply:(random_invert:1;random_equalize:1),p=0.8; \
                  random_choice:(random_order:(random_invert)),[2]);to_float";
    same(nested, {
        let alone = t().random_order(&t().random_invert(0.5)).ops().to_vec();
        let nested = t().random_apply(&t().random_invert(1.0).random_equalize(1.0), 0.8);
        t().center_crop(8).random_order(&nested.push(RandomChoice { transforms: alone, p: Some(vec![2.0]) })).to_float()
    });
    same("normalize:[0.5],[0.25]", t().normalize([0.5], [0.25]));
    same(r#"normalize:mean=[0.1, 0.2],std=[1,2]"#, t().normalize([0.1, 0.2], [1.0, 2.0]));
}

#[test]
fn a_wrong_line_says_what_and_where() {
    let refused = |line: &str, words: &[&str]| {
        let error = line.parse::<Transform>().unwrap_err();
        let said = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(words.iter().all(|word| said.contains(word)), "{line}: {said}");
    };
    refused("imagenet-trian", &["no transform and no step \"imagenet-trian\"", "did you mean imagenet-train?"]);
    refused("resnet50", &["no transform and no step \"resnet50\"", "imagenet-train", "color_jitter"]);
    refused("dino;to_float", &["dino is several views of an image", "View::preset", "(step 1)"]);
    refused(
        "center_crop:224;colour_jitter:0.4",
        &["no step \"colour_jitter\"", "did you mean color_jitter?", "(step 2)"],
    );
    refused("center_crop:224,bicubic", &["one setting too many", "takes size"]);
    refused("center_crop:size=2,size=3", &["size twice"]);
    refused("center_crop", &["missing field `size`"]);
    refused("center_crop:big", &["a number or [height, width]"]);
    refused("random_apply:(center_crop:3,p=0.5", &["unclosed"]);
    refused("center_crop:3)", &["unmatched"]);
    refused("random_apply:(nothing:3),0.5", &["no step \"nothing\""]);
    refused("random_order:(random_invert),0.5", &["random_order has one setting too many", "takes transforms"]);
    refused("random_order", &["missing field `transforms`"]);
    refused("rand_augment:x=3", &["unknown field `x`"]);
}

#[test]
fn settings_without_sense_are_refused_by_name_and_place() {
    let rgb = |t: Transform, words: &[&str]| refused(&t, &RGB, DType::F32, words);
    let t = || Transform::new().center_crop(16);
    rgb(t().random_grayscale(1.5), &["random_grayscale has probability 1.5 (step 2)", "0 to 1"]);
    rgb(t().random_invert(f32::NAN), &["random_invert has probability NaN"]);
    rgb(t().color_jitter(-0.1, 0.0, 0.0, 0.0), &["color_jitter has brightness -0.1"]);
    rgb(t().color_jitter(0.0, [1.5, 0.5], 0.0, 0.0), &["contrast 1.5 to 0.5"]);
    rgb(t().color_jitter(0.0, 0.0, 0.0, 0.6), &["hue 0.6", "at most 0.5"]);
    rgb(t().random_solarize(128.0, 0.5), &["threshold 128", "0.502"]);
    rgb(t().random_posterize(9, 0.5), &["keeps 9 bits", "0 to 8"]);
    rgb(t().random_adjust_sharpness(-1.0, 0.5), &["sharpness_factor -1"]);
    rgb(t().gaussian_blur(4), &["kernel of 4x4", "odd"]);
    rgb(t().gaussian_blur(33), &["33x33 is too large for a picture of 16x16"]);
    let blur = GaussianBlur { kernel_size: KernelSize::Square(3), sigma: [0.0, 2.0], p: 1.0 };
    rgb(t().push(blur), &["gaussian_blur has sigma 0 to 2"]);
    rgb(t().rand_augment(2, 31), &["magnitude 31 of 31 bins", "0 to 30"]);
    rgb(t().push(RandAugment { num_magnitude_bins: 1, ..RandAugment::default() }), &["1 magnitude bins"]);
    rgb(t().push(AugMix { severity: 11, ..AugMix::default() }), &["severity 11", "1 to 10"]);
    rgb(t().push(AugMix { alpha: 0.0, ..AugMix::default() }), &["alpha 0"]);
    rgb(t().timm_rand_augment(10.5), &["magnitude 10.5", "0 to 10"]);
    rgb(t().push(TimmRandAugment { interpolation: vec![], ..TimmRandAugment::default() }), &["no interpolation"]);
    rgb(t().random_rotation([30.0, -30.0]), &["degrees 30 to -30"]);
    rgb(t().random_rotation(f64::NAN), &["degrees NaN"]);
    let affine = RandomAffine { translate: Some([0.1, 1.5]), ..RandomAffine::new(0.0) };
    rgb(t().push(affine), &["random_affine has translate 1.5"]);
    let affine = RandomAffine { shear: Some(Shear::By(95.0)), ..RandomAffine::new(0.0) };
    rgb(t().push(affine), &["random_affine has shear -95 to 95"]);
    let affine = RandomAffine { scale: Some([0.0, 1.0]), ..RandomAffine::new(0.0) };
    rgb(t().push(affine), &["random_affine has scale 0 to 1"]);
    let fill = |fill| RandomRotation { fill: Some(fill), ..RandomRotation::new(10.0) };
    rgb(t().push(fill(Value::Each(vec![0.1, 0.2]))), &["2 numbers as fill for 3 channels"]);
    rgb(t().push(fill(Value::All(128.0))), &["fill 128"]);
    rgb(t().random_perspective(1.5, 0.5), &["distortion_scale 1.5"]);
    let erasing = |step: RandomErasing| t().to_float().push(step);
    rgb(
        erasing(RandomErasing { scale: [0.3, 0.1], ..RandomErasing::default() }),
        &["random_erasing has scale 0.3 to 0.1"],
    );
    rgb(erasing(RandomErasing { ratio: [0.0, 1.0], ..RandomErasing::default() }), &["ratio 0 to 1"]);
    rgb(erasing(RandomErasing { count: 0, ..RandomErasing::default() }), &["count 0"]);
    let two = Erasing::Constant(Value::Each(vec![0.0; 2]));
    rgb(erasing(RandomErasing { value: two, ..RandomErasing::default() }), &["2 numbers as value for 3 channels"]);
    rgb(t().random_apply(&Transform::new(), 0.5), &["random_apply has no transforms"]);
    rgb(t().random_apply(&Transform::new().center_crop(3), 0.5), &["center_crop is inside random_apply"]);
    rgb(t().random_order(&Transform::new().random_invert(2.0)), &["random_invert in random_order has probability 2"]);
    let choice = |p| RandomChoice { transforms: Transform::new().random_invert(0.5).ops().to_vec(), p: Some(p) };
    rgb(t().push(choice(vec![1.0, 2.0])), &["2 weights for 1 transforms"]);
    rgb(t().push(choice(vec![0.0])), &["weights [0.0]"]);
}

fn refused(t: &Transform, field: &FieldKind, dtype: DType, words: &[&str]) {
    let error = t.lower(field, dtype, Layout::Nchw).unwrap_err();
    let said = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Config, "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{t}: {said}");
}

#[test]
fn chains_without_a_meaning_are_refused() {
    let t = || Transform::new().random_resized_crop(16);
    let norm = |t: Transform| t.normalize([0.5], [0.5]);
    refused(&norm(t()).random_invert(0.5), &RGB, DType::F32, &["random_invert comes after normalize (step 3)"]);
    refused(&norm(t()).random_erasing(0.5).horizontal_flip(0.5), &RGB, DType::F32, &["random_erasing comes before"]);
    refused(&t().random_erasing_noise(0.5), &RGB, DType::F32, &["noise around 0", "to_float or normalize"]);
    refused(&t().random_erasing_noise(0.5).random_invert(0.5), &RGB, DType::F32, &["random_erasing comes before"]);
    refused(&t().trivial_augment_wide().to_float(), &RGB, DType::U8, &["to_float gives fractions"]);
    let five = FieldKind::Image { channels: 5, size: None, dtype: None };
    for t in [
        t().color_jitter(0.4, 0.0, 0.0, 0.0),
        t().random_grayscale(0.5),
        t().rand_augment(2, 9),
        t().trivial_augment_wide(),
        t().auto_augment(Policy::Imagenet),
        t().random_autocontrast(0.5),
        t().random_adjust_sharpness(2.0, 0.5),
    ] {
        refused(&t, &five, DType::F32, &["on pictures of 5 channels", "gray pictures and RGB"]);
    }
    refused(&t().random_channel_permutation(), &five, DType::F32, &["up to 4 channels"]);
    // Volumes have steps of their own.
    let volume = FieldKind::Volume { channels: 1, size: None, mask: None };
    let error = Transform::new().random_invert(0.5).lower_volume(&volume, DType::F32).unwrap_err();
    assert!(error.to_string().contains("random_invert"), "{error}");
}

#[test]
fn a_blur_that_is_wider_than_a_picture_makes_a_bad_sample_always() {
    let t = Transform::new().push(GaussianBlur { kernel_size: KernelSize::Square(9), sigma: [1.0, 1.0], p: 0.5 });
    let lowered = t.resize_exact(8, 8).lower(&RGB, DType::F32, Layout::Nchw).unwrap();
    let draw = |side, record| lowered.draw(&ImageInfo::interleaved_u8(side, 40, 3), SampleRng::new(1, 1, record));
    assert!((0..50).all(|record| draw(5, record).is_ok()));
    for record in 0..50 {
        let error = draw(4, record).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error.to_string().contains("gaussian_blur: a kernel of 9x9 is too large for a picture of 4x40"),
            "{error}"
        );
    }
}

/// Chi-square of counts that should be equal.
fn chi(counts: impl IntoIterator<Item = u32>) -> (f64, usize) {
    let counts: Vec<u32> = counts.into_iter().collect();
    let mean = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
    (counts.iter().map(|&n| (f64::from(n) - mean).powi(2) / mean).sum(), counts.len() - 1)
}

/// Far beyond what chance does: mean and six deviations of the distribution.
fn even(counts: impl IntoIterator<Item = u32>) {
    let (chi, freedom) = chi(counts);
    let most = freedom as f64 + 6.0 * (2.0 * freedom as f64).sqrt();
    assert!(chi < most, "chi-square {chi} of {freedom} degrees of freedom");
}

#[test]
fn policies_choose_their_steps_evenly() {
    let info = ImageInfo::interleaved_u8(64, 64, 3);
    let t = Transform::new().trivial_augment_wide().center_crop(64);
    let mut counts: HashMap<String, u32> = HashMap::new();
    let mut none = 0;
    for record in 0..28_000 {
        match drawn(&t, &info, record).pixel_ops().next() {
            Some(PixelOp::Warp { .. }) => *counts.entry("Warp".into()).or_default() += 1,
            Some(op) => *counts.entry(name(op)).or_default() += 1,
            None => none += 1,
        }
    }
    // Bin 0 of 31 changes nothing for nine of the fourteen, as does a way of less than a pixel for two of these.
    let single = ["Posterize", "Solarize", "Autocontrast", "Equalize"].map(|name| counts[name]);
    even(single);
    assert!(single.iter().all(|n| n.abs_diff(2000) < 250), "{counts:?}");
    let enhanced = ["Brightness", "Contrast", "Saturation", "Sharpness"].map(|name| counts[name]);
    even(enhanced);
    assert!(counts["Warp"].abs_diff(5 * 2000 * 30 / 31) < 500, "{counts:?}");
    assert!((2000..2900).contains(&none), "{none}");
}

#[test]
fn factors_are_even_over_their_range_and_orders_over_all() {
    let info = ImageInfo::interleaved_u8(32, 32, 3);
    let t = Transform::new().color_jitter(0.4, [0.2, 0.6], 1.5, 0.25).center_crop(32);
    let (mut orders, mut bins) = (HashMap::<Vec<String>, u32>::new(), [[0u32; 16]; 4]);
    for record in 0..24_000 {
        let drawn = drawn(&t, &info, record);
        let ops: Vec<&PixelOp> = drawn.pixel_ops().collect();
        *orders.entry(ops.iter().map(|op| name(op)).collect()).or_default() += 1;
        for op in ops {
            let (n, value, [low, high]) = match op {
                PixelOp::Brightness(v) => (0, *v, [0.6, 1.4]),
                PixelOp::Contrast(v) => (1, *v, [0.2, 0.6]),
                // Never below 0.
                PixelOp::Saturation(v) => (2, *v, [0.0, 2.5]),
                PixelOp::Hue(v) => (3, *v, [-0.25, 0.25]),
                op => panic!("{op:?}"),
            };
            let part = (value - low) / (high - low);
            assert!((0.0..=1.0).contains(&part), "{op:?}");
            bins[n][((part * 16.0) as usize).min(15)] += 1;
        }
    }
    assert_eq!(orders.len(), 24);
    even(orders.into_values());
    bins.into_iter().for_each(even);
}

#[test]
fn probabilities_are_what_they_say() {
    let info = ImageInfo::interleaved_u8(32, 32, 3);
    let jitter = Transform::new().color_jitter(0.5, 0.0, 0.0, 0.0);
    let cases = [
        (Transform::new().random_invert(0.3), 0.3),
        (Transform::new().random_solarize(0.5, 0.7), 0.7),
        (Transform::new().push(GaussianBlur { kernel_size: KernelSize::Square(3), sigma: [0.1, 2.0], p: 0.1 }), 0.1),
        (Transform::new().random_apply(&jitter, 0.8), 0.8),
        (Transform::new().random_perspective(0.5, 0.25), 0.25),
        (Transform::new().random_grayscale(0.0), 0.0),
        (Transform::new().random_grayscale(1.0), 1.0),
    ];
    for (t, p) in cases {
        let n = 20_000u32;
        let t = t.center_crop(32);
        let count = (0..n).filter(|record| drawn(&t, &info, u64::from(*record)).pixel_ops().next().is_some()).count();
        let deviation = (p * (1.0 - p) / f64::from(n)).sqrt();
        assert!((count as f64 / f64::from(n) - p).abs() <= 5.0 * deviation, "{t}: {count} of {n}");
    }
}

#[test]
fn a_choice_follows_its_weights() {
    let info = ImageInfo::interleaved_u8(32, 32, 3);
    let transforms = Transform::new().random_invert(1.0).random_equalize(1.0).random_posterize(4, 1.0).ops().to_vec();
    let t = Transform::new().push(RandomChoice { transforms, p: Some(vec![1.0, 0.0, 3.0]) }).center_crop(32);
    let mut counts: HashMap<String, u32> = HashMap::new();
    for record in 0..20_000 {
        let drawn = drawn(&t, &info, record);
        let [op] = drawn.pixel_ops().collect::<Vec<_>>()[..] else { panic!("one step") };
        *counts.entry(name(op)).or_default() += 1;
    }
    assert_eq!(counts.len(), 2, "{counts:?}");
    assert!(counts["Invert"].abs_diff(5000) < 350, "{counts:?}");
}

#[test]
fn timms_magnitudes_lie_around_theirs() {
    let info = ImageInfo::interleaved_u8(100, 100, 3);
    let t = |std| {
        let step =
            TimmRandAugment { magnitude: 5.0, magnitude_std: std, num_ops: 1, p: 1.0, ..TimmRandAugment::default() };
        Transform::new().push(step).center_crop(100)
    };
    let factors = |std| {
        let t = t(std);
        let factor = |record| match drawn(&t, &info, record).pixel_ops().next() {
            Some(PixelOp::Brightness(factor)) => Some(f64::from((factor - 1.0).abs()) / 0.09),
            _ => None,
        };
        (0..40_000).filter_map(factor).collect::<Vec<f64>>()
    };
    let moments = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt())
    };
    let fixed = factors(0.0);
    assert!(fixed.len().abs_diff(40_000 / 15) < 300 && fixed.iter().all(|m| (m - 5.0).abs() < 1e-4));
    let (mean, std) = moments(&factors(1.0));
    assert!((mean - 5.0).abs() < 0.1 && (std - 1.0).abs() < 0.1, "{mean} {std}");
    // Uniform from 0 to 5.
    let (mean, std) = moments(&factors(101.0));
    assert!((mean - 2.5).abs() < 0.15 && (std - 5.0 / 12f64.sqrt()).abs() < 0.1, "{mean} {std}");
}

#[test]
fn rectangles_have_the_area_proportion_and_places_they_should() {
    let info = ImageInfo::interleaved_u8(100, 80, 3);
    let data = vec![255; 100 * 80 * 3];
    let step = RandomErasing { p: 0.5, scale: [0.02, 0.33], ratio: [0.3, 3.3], ..RandomErasing::default() };
    let t = Transform::new().resize_exact(100, 80).to_float().push(step);
    let (mut erased, mut middles) = (0, [0u32; 4]);
    for record in 0..2000 {
        let row = floats(&row(&t, &RGB, (DType::F32, Layout::Nchw), info, &data, record));
        let plane = &row[..8000];
        assert!(row[8000..16000] == *plane && plane.iter().all(|v| *v == 0.0 || *v == 1.0));
        let black: Vec<usize> = (0..8000).filter(|at| plane[*at] == 0.0).collect();
        let (Some(first), Some(last)) = (black.first(), black.last()) else { continue };
        erased += 1;
        let (h, w) = (last / 80 - first / 80 + 1, last % 80 - first % 80 + 1);
        assert_eq!(black.len(), h * w, "a rectangle");
        let (area, ratio) = (black.len() as f64 / 8000.0, h as f64 / w as f64);
        assert!((0.018..0.35).contains(&area) && (0.26..3.7).contains(&ratio), "{h}x{w}");
        middles[usize::from(first / 80 + h / 2 >= 50) * 2 + usize::from(first % 80 + w / 2 >= 40)] += 1;
    }
    assert!((900..1100).contains(&erased), "{erased}");
    even(middles);
}

#[test]
fn what_is_erased_is_in_the_units_of_its_place() {
    let info = ImageInfo::interleaved_u8(20, 20, 3);
    let data = vec![51; 1200];
    let erase = |value: f32| RandomErasing {
        p: 1.0,
        scale: [0.5, 0.5],
        ratio: [1.0, 1.0],
        value: Erasing::Constant(Value::All(value)),
        count: 1,
    };
    let t = || Transform::new().center_crop(20);
    let values = |t: &Transform, dtype| {
        let bytes = row(t, &RGB, (dtype, Layout::Nhwc), info, &data, 1);
        let mut values =
            if dtype == DType::F32 { floats(&bytes) } else { bytes.iter().map(|b| f32::from(*b)).collect() };
        values.sort_by(f32::total_cmp);
        values.dedup();
        values
    };
    assert_eq!(values(&t().push(erase(1.0)), DType::U8), [51.0, 255.0]);
    assert_eq!(values(&t().push(erase(1.0)), DType::F32), [51.0, 255.0]);
    let near = |found: Vec<f32>, want: &[f32]| {
        assert!(found.len() == want.len() && found.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
    };
    near(values(&t().to_float().push(erase(1.0)), DType::F32), &[0.2, 1.0]);
    // White, then normalised; or 1 already.
    near(values(&t().push(erase(1.0)).normalize([0.2], [0.5]), DType::F32), &[0.0, 1.6]);
    assert_eq!(values(&t().normalize([0.2], [0.5]).push(erase(1.0)), DType::F32).last(), Some(&1.0));
    // Before a step on pictures.
    assert_eq!(values(&t().push(erase(1.0)).random_invert(1.0), DType::U8), [0.0, 204.0]);

    let noise = RandomErasing { value: Erasing::Noise(Noise::Random), ..erase(0.0) };
    let noisy = floats(&row(&t().to_float().push(noise), &RGB, (DType::F32, Layout::Nchw), info, &data, 1));
    let drawn: Vec<f32> = noisy.into_iter().filter(|v| (*v - 0.2).abs() > 1e-6).collect();
    assert_eq!(drawn.len(), 14 * 14 * 3);
    let mean = drawn.iter().sum::<f32>() / drawn.len() as f32;
    let variance = drawn.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / drawn.len() as f32;
    assert!(mean.abs() < 0.2 && (0.8..1.2).contains(&variance), "{mean} {variance}");
    let colour = RandomErasing { value: Erasing::Noise(Noise::Color), ..erase(0.0) };
    assert_eq!(values(&t().to_float().push(colour), DType::F32).len(), 4);
}

#[test]
fn a_step_at_the_end_leaves_the_draws_of_the_others() {
    let info = ImageInfo::interleaved_u8(40, 50, 3);
    let steps = all_steps();
    for (n, step) in steps.iter().enumerate().filter(|(_, step)| !matches!(step, Op::RandomErasing(_))) {
        let short = Transform::new().random_resized_crop(32).push(step.clone());
        let long = steps[n..].iter().cloned().fold(short.clone(), Transform::push);
        for record in 0..5 {
            let (short, long) = (drawn(&short, &info, record), drawn(&long, &info, record));
            assert_eq!(short.params, long.params);
            let ops: Vec<&PixelOp> = short.pixel_ops().collect();
            assert_eq!(ops, long.pixel_ops().take(ops.len()).collect::<Vec<_>>(), "{}", step.name());
        }
    }
}

#[test]
fn a_mask_moves_as_its_picture_does() {
    // A picture that is its own mask: where it shows label 1 of 0 and 1, it is white.
    let info = ImageInfo { channels: 1, ..ImageInfo::interleaved_u8(60, 70, 1) };
    let labels: Vec<u8> = (0..60 * 70).map(|at| u8::from((at % 70 / 9 + at / 70 / 7) % 3 == 0)).collect();
    let picture: Vec<u8> = labels.iter().map(|label| label * 255).collect();
    let gray = FieldKind::Image { channels: 1, size: None, dtype: None };
    let moves = Transform::new()
        .random_crop(56, 0)
        .horizontal_flip(0.5)
        .random_rotation(45.0)
        .push(RandomAffine { translate: Some([0.2, 0.2]), shear: Some(Shear::By(20.0)), ..RandomAffine::new(10.0) })
        .push(RandomPerspective { p: 0.7, interpolation: Sampling::Nearest, ..RandomPerspective::default() })
        .vertical_flip(0.5)
        .random_crop(48, 0)
        .random_rotation(180.0);
    let policies = Transform::new()
        .center_crop(48)
        .rand_augment(3, 20)
        .trivial_augment_wide()
        .auto_augment(Policy::Cifar10)
        .random_choice(&Transform::new().random_rotation(30.0).random_photometric_distort());
    for record in 0..200 {
        let lowered = moves.lower_mask(&gray, Layout::Nchw).unwrap();
        let mask = |t: &Transform| {
            let lowered = t.lower_mask(&gray, Layout::Nchw).unwrap();
            let drawn = lowered.draw(&info, SampleRng::new(7, 1, record)).unwrap();
            let mut out = vec![9; lowered.row().len_bytes()];
            let src = Pixels { info, rows: 0..info.height, data: &labels };
            RowMaker::new().run(&lowered, &drawn, Decoded::Pixels(&src), &mut out).unwrap();
            out
        };
        let white: Vec<u8> = mask(&moves).iter().map(|label| label * 255).collect();
        assert_eq!(row(&moves, &gray, (DType::U8, Layout::Nchw), info, &picture, record), white, "{record}");
        assert_eq!((lowered.row().height, lowered.row().dtype), (48, DType::U8));
        // Of policies, the mask has the warps alone, the very same.
        let warps = |drawn: &Drawn| {
            let maps = drawn.pixel_ops().filter_map(|op| match op {
                PixelOp::Warp { map, .. } => Some(*map),
                _ => None,
            });
            maps.collect::<Vec<_>>()
        };
        let of_mask = policies.lower_mask(&gray, Layout::Nchw).unwrap();
        let of_mask = of_mask.draw(&info, SampleRng::new(7, 1, record)).unwrap();
        let colour = ImageInfo::interleaved_u8(60, 70, 3);
        assert_eq!(warps(&of_mask), warps(&drawn(&policies, &colour, record)), "{record}");
        assert_eq!(of_mask.pixel_ops().count(), warps(&of_mask).len());
        assert!(mask(&policies).iter().all(|label| *label < 2));
    }
    let error = Transform::new().center_crop(48).aug_mix().lower_mask(&gray, Layout::Nchw).unwrap_err();
    assert!(error.to_string().contains("aug_mix blends pictures that are moved differently"), "{error}");
    // What changes values only leaves masks a single resample.
    let plain = Transform::new().center_crop(48).color_jitter(0.4, 0.4, 0.4, 0.1).gaussian_blur(3);
    assert!(!plain.lower_mask(&gray, Layout::Nchw).unwrap().needs_cpu());
}

proptest! {
    #![proptest_config(crate::properties::properties(48, 768))]

    /// Layout and type of the row change its values in no other way than they say; a lone picture is like one of many.
    #[test]
    fn rows_are_the_same_in_every_layout_and_type(
        which in 0..26usize, record in 0..1000u64, height in 20..50u32, width in 20..50u32, unit in any::<bool>()
    ) {
        let info = ImageInfo::interleaved_u8(height, width, 3);
        let data = pixels(&info, record);
        let steps = all_steps();
        let t = Transform::new().random_resized_crop(24);
        // In 0..1 each step means the same as in 0..255, but for rounding.
        let t = if unit { t.to_float() } else { t }.push(steps[which % steps.len()].clone()).horizontal_flip(0.5);
        let t = if unit || matches!(steps[which % steps.len()], Op::RandomErasing(_)) { t } else { t.vertical_flip(0.5) };
        let row = |how| row(&t, &RGB, how, info, &data, record);
        let planes = floats(&row((DType::F32, Layout::Nchw)));
        let pixels = floats(&row((DType::F32, Layout::Nhwc)));
        prop_assert!((0..3 * 24 * 24).all(|at| planes[at % 3 * 576 + at / 3] == pixels[at]));
        let halves: Vec<f32> = row((DType::F16, Layout::Nchw)).as_chunks().0.iter()
            .map(|&bits| half::f16::from_ne_bytes(bits).to_f32()).collect();
        prop_assert!(planes.iter().zip(&halves).all(|(whole, half)| half::f16::from_f32(*whole).to_f32() == *half));
        // Weights of a resampling add up to 1 but for rounding, and timm's warps may be bicubic, which overshoots: bytes show
        // neither.
        let bicubic = matches!(steps[which % steps.len()], Op::TimmRandAugment(_));
        let (most, slack) = if unit { (1.0, if bicubic { 0.3 } else { 1e-6 }) } else { (255.0, 0.0) };
        prop_assert!(planes.iter().all(|v| (-slack..=most + slack).contains(v)), "within its range");
        if !unit {
            let bytes = row((DType::U8, Layout::Nchw));
            prop_assert!(bytes.iter().zip(&planes).all(|(byte, v)| f32::from(*byte) == *v));
            let normal = t.clone().normalize([0.5, 0.25, 0.75], [0.5, 0.25, 2.0]);
            let normal = floats(&crate::augment::row(&normal, &RGB, (DType::F32, Layout::Nchw), info, &data, record));
            let scaled = |at: usize| planes[at] / 255.0;
            let want = |at: usize| [(scaled(at) - 0.5) / 0.5, (scaled(at) - 0.25) / 0.25, (scaled(at) - 0.75) / 2.0][at / 576];
            prop_assert!((0..3 * 576).all(|at| (normal[at] - want(at)).abs() < 1e-5));
        }
    }
}

#[test]
fn steps_in_0_to_1_do_what_steps_on_bytes_do() {
    let info = ImageInfo::interleaved_u8(40, 40, 3);
    let data = pixels(&info, 3);
    // `gray_to_rgb` stands in the place of `to_float`: draws are keyed by it.
    for op in all_steps() {
        // A pixel on the edge of a step may fall to either side.
        let few = matches!(
            op.name(),
            "random_solarize"
                | "random_posterize"
                | "rand_augment"
                | "timm_rand_augment"
                | "trivial_augment_wide"
                | "auto_augment"
                | "aug_mix"
                | "three_augment"
                | "random_order"
                | "random_equalize"
        );
        for record in 0..8 {
            let bytes = row(
                &Transform::new().center_crop(40).gray_to_rgb().push(op.clone()),
                &RGB,
                (DType::U8, Layout::Nchw),
                info,
                &data,
                record,
            );
            let unit = Transform::new().center_crop(40).to_float().push(op.clone());
            let unit = floats(&row(&unit, &RGB, (DType::F32, Layout::Nchw), info, &data, record));
            let apart = |(byte, v): (&u8, &f32)| (f32::from(*byte) - v * 255.0).abs();
            let far = bytes.iter().zip(&unit).map(apart).filter(|levels| *levels > 6.0).count();
            assert!(
                far <= if few { bytes.len() / 8 } else { 0 },
                "{}: {far} of {} at {record}",
                op.name(),
                bytes.len()
            );
        }
    }
}

#[test]
fn images_of_other_types_pass_through_tiles_of_their_own() {
    // The same picture in 16 bits, and one of f32.
    let info = ImageInfo::interleaved_u8(30, 30, 3);
    let data = pixels(&info, 5);
    let wide: Vec<u8> = data.iter().flat_map(|b| (u16::from(*b) * 257).to_ne_bytes()).collect();
    let float: Vec<u8> = data.iter().flat_map(|b| (f32::from(*b) / 255.0).to_ne_bytes()).collect();
    let t = Transform::new().center_crop(28).color_jitter(0.4, 0.4, 0.4, 0.1).random_rotation(20.0);
    let make = |t: &Transform, dtype, data: &[u8], n| {
        floats(&row(t, &RGB, (DType::F32, Layout::Nchw), ImageInfo { dtype, ..info }, data, n))
    };
    for n in 0..5 {
        // Without to_float, rows keep the units of the pixels.
        let raw = make(&t, DType::U16, &wide, n);
        let unit = make(&t.clone().to_float(), DType::U16, &wide, n);
        assert!(raw.iter().zip(&unit).all(|(raw, unit)| (raw - unit * 65_535.0).abs() < 0.01));
        let of_float = make(&t.clone().to_float(), DType::F32, &float, n);
        assert!(of_float.iter().zip(&unit).all(|(a, b)| (a - b).abs() < 1e-5));
        let of_bytes = make(&t.clone().to_float(), DType::U8, &data, n);
        assert!(of_bytes.iter().zip(&unit).all(|(a, b)| (a - b).abs() < 6.0 / 255.0));
    }
}

#[test]
fn a_mask_has_a_picture_where_its_image_needs_one() {
    // Resizes that do not fold stand on both sides of steps that move nothing; the second image is smaller than its crop.
    let gray = FieldKind::Image { channels: 1, size: None, dtype: None };
    for (height, width) in [(30u32, 44u32), (12, 10)] {
        let info = ImageInfo::interleaved_u8(height, width, 1);
        let labels: Vec<u8> =
            (0..height * width).map(|at| u8::from((at % width / 3 + at / width / 4) % 2 == 0)).collect();
        let t = Transform::new()
            .center_crop(20)
            .random_invert(0.5)
            .resize_exact(40, 30)
            .color_jitter(0.4, 0.4, 0.0, 0.0)
            .random_resized_crop(24);
        let lowered = t.lower_mask(&gray, Layout::Nchw).unwrap();
        let image = t.lower(&gray, DType::F32, Layout::Nchw).unwrap();
        for record in 0..20 {
            let rng = SampleRng::new(7, 1, record);
            let drawn = lowered.draw(&info, rng).unwrap();
            // The same window of the same pictures as the image's.
            assert_eq!(drawn.params.y, image.draw(&info, rng).unwrap().params.y);
            let mut out = vec![9; 24 * 24];
            let src = Pixels { info, rows: 0..height, data: &labels };
            RowMaker::new().run(&lowered, &drawn, Decoded::Pixels(&src), &mut out).unwrap();
            assert!(out.iter().all(|label| *label < 2));
            assert!(out.contains(&0));
        }
    }
}

#[test]
fn gray_images_of_a_colour_dataset_are_augmented_as_colour() {
    let info = ImageInfo::interleaved_u8(20, 20, 1);
    let data = pixels(&info, 1);
    let t = Transform::new().center_crop(16).color_jitter(0.4, 0.4, 0.4, 0.3).random_channel_permutation();
    let planes = row(&t, &RGB, (DType::U8, Layout::Nchw), info, &data, 3);
    assert!(planes[..256] == planes[256..512] && planes[..256] == planes[512..]);
    let one = Transform::new().center_crop(16).grayscale(1);
    let lowered = one.lower(&RGB, DType::U8, Layout::Nchw).unwrap();
    assert_eq!(lowered.row().channels, 1);
    let colour = ImageInfo::interleaved_u8(20, 20, 3);
    let gray = row(&one, &RGB, (DType::U8, Layout::Nchw), colour, &vec![100; 1200], 1);
    assert_eq!((gray.len(), gray[0]), (256, 99));
    // 0.2989 + 0.587 + 0.114 is 0.9999.
    let three = row(&one.grayscale(3), &RGB, (DType::U8, Layout::Nchw), colour, &vec![100; 1200], 1);
    assert_eq!(three.len(), 256);
}

#[test]
fn several_resamples_follow_one_another_where_pictures_lie_between() {
    // Crop, colours, then another resize and a padded crop: each fold has its own.
    let info = ImageInfo::interleaved_u8(33, 47, 3);
    let data = pixels(&info, 8);
    let t = Transform::new()
        .resize_exact(40, 40)
        .random_invert(1.0)
        .cutout(8)
        .random_invert(1.0)
        .resize_exact(20, 20)
        .random_crop(20, 4);
    let plain = Transform::new().resize_exact(40, 40);
    let bytes = row(&t, &RGB, (DType::U8, Layout::Nchw), info, &data, 2);
    let first = row(&plain, &RGB, (DType::U8, Layout::Nchw), info, &data, 2);
    // What the first resize gave, resized again, stands where neither padding nor the square fell.
    let again = Transform::new().resize_exact(20, 20);
    let planar = ImageInfo { planar: true, ..ImageInfo::interleaved_u8(40, 40, 3) };
    let second = row(&again, &RGB, (DType::U8, Layout::Nchw), planar, &first, 2);
    let shifts = (-4i64..=4).flat_map(|dy| (-4i64..=4).map(move |dx| (dy, dx)));
    let matches = |(dy, dx): (i64, i64)| {
        (0..1200usize)
            .filter(|at| {
                let (c, y, x) = (at / 400, (at / 20 % 20) as i64 + dy, (at % 20) as i64 + dx);
                (0..20).contains(&y) && (0..20).contains(&x) && bytes[*at] == second[c * 400 + (y * 20 + x) as usize]
            })
            .count()
    };
    let most = shifts.map(matches).max().unwrap();
    assert!(most > 700, "{most} of 1200 pixels are those of the second resize");
    // White of the square that was inverted, black of the padding.
    assert!(bytes.contains(&255) && bytes.contains(&0));
}

fn dataset() -> Arc<dyn Dataset> {
    let info = ImageInfo::interleaved_u8(48, 40, 3);
    let data: Vec<u8> = (0..60).flat_map(|record| pixels(&info, record)).collect();
    let builder = MemoryDataset::builder().images_u8(data, 60, 48, 40, 3, false).labels((0..60).collect());
    Arc::new(builder.build().unwrap())
}

fn epoch(transform: &Transform, workers: usize, from: u64) -> Vec<(Vec<u64>, Vec<f32>)> {
    let loader = Loader::builder(dataset()).batch_size(8).shuffle(3).workers(workers).transform(transform.clone());
    let loader = loader.build_blocking().unwrap();
    let batches = loader.epochs(0..2).blocking().skip(from as usize);
    let plain = |batch: infeed::Result<infeed::Batch>| {
        let batch = batch.unwrap();
        (batch.records().to_vec(), batch["image"].to_vec::<f32>().unwrap())
    };
    batches.map(plain).collect()
}

#[test]
fn augmented_batches_do_not_depend_on_who_makes_them() {
    let t = Transform::new()
        .random_resized_crop(32)
        .horizontal_flip(0.5)
        .rand_augment(2, 9)
        .trivial_augment_wide()
        .color_jitter(0.4, 0.4, 0.4, 0.1)
        .normalize(infeed::IMAGENET_MEAN, infeed::IMAGENET_STD)
        .random_erasing_noise(0.5);
    let one = epoch(&t, 1, 0);
    assert!(one == epoch(&t, 4, 0));
    assert!(one[5..] == epoch(&t, 3, 5)[..]);
    // Another epoch draws anew.
    let (half, per_epoch) = (one.len() / 2, 8 * 3 * 32 * 32);
    assert!(one[0].1[..per_epoch] != one[half].1[..per_epoch]);
    let _ = AutoAugment::default();
}

#[cfg(target_os = "linux")]
#[test]
fn augmented_batches_on_a_gpu_are_those_of_the_cpu() {
    crate::support::mock::on_mock("augment::augmented_batches_on_a_gpu_are_those_of_the_cpu", &[], |_| {
        for t in [
            Transform::new()
                .random_resized_crop(32)
                .trivial_augment_wide()
                .normalize([0.5], [0.25])
                .random_erasing(0.5),
            Transform::new().center_crop(32).to_float().color_jitter(0.4, 0.4, 0.4, 0.1).aug_mix(),
        ] {
            crate::device::agree(&dataset(), |builder| builder.batch_size(8).transform(t.clone()));
        }
    });
}
