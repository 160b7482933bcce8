//! A transform in one line: `random_resized_crop:176,bicubic;trivial_augment_wide;normalize;random_erasing:0.1`.

use std::{fmt::Write, str::FromStr};

use infeed_core::{
    error::{
        Error, Result,
        setting::{Front, TRANSFORM},
    },
    types::similar::nearest,
};
use serde_json::{Map, Value, json};

use super::{
    chain::Transform,
    op::Op,
    presets::{CIFAR10_MEAN, CIFAR10_STD, IMAGENET_MEAN, IMAGENET_STD, PRESETS},
    view::VIEW_PRESETS,
};

/// For each step, the settings that may be given without a name, in order. Steps that are not listed take only named
/// settings.
const PLACES: [(&str, &[&str]); 42] = [
    ("resize_shorter", &["size"]),
    ("resize_exact", &["size"]),
    ("resize_keep_ratio", &["size", "longest"]),
    ("center_crop", &["size"]),
    ("random_crop", &["size", "padding"]),
    ("random_resized_crop", &["size", "scale", "ratio"]),
    ("horizontal_flip", &["p"]),
    ("vertical_flip", &["p"]),
    ("normalize", &["mean", "std"]),
    ("cutout", &["size"]),
    ("color_jitter", &["brightness", "contrast", "saturation", "hue"]),
    ("random_grayscale", &["p"]),
    ("grayscale", &["num_output_channels"]),
    ("gaussian_blur", &["kernel_size", "sigma", "p"]),
    ("random_solarize", &["threshold", "p"]),
    ("random_posterize", &["bits", "p"]),
    ("random_equalize", &["p"]),
    ("random_autocontrast", &["p"]),
    ("random_invert", &["p"]),
    ("random_adjust_sharpness", &["sharpness_factor", "p"]),
    ("random_photometric_distort", &["p"]),
    ("random_erasing", &["p", "value"]),
    ("random_rotation", &["degrees"]),
    ("random_affine", &["degrees", "translate", "scale", "shear"]),
    ("random_perspective", &["distortion_scale", "p"]),
    ("rand_augment", &["num_ops", "magnitude", "num_magnitude_bins"]),
    ("timm_rand_augment", &["magnitude", "magnitude_std"]),
    ("trivial_augment_wide", &["num_magnitude_bins"]),
    ("auto_augment", &["policy"]),
    ("aug_mix", &["severity", "mixture_width", "chain_depth", "alpha"]),
    ("random_shortest_size", &["min_size", "max_size"]),
    ("scale_jitter", &["target_size", "scale_range"]),
    ("random_zoom_out", &["p", "fill", "side_range"]),
    ("random_iou_crop", &["min_scale", "max_scale"]),
    ("fixed_size_crop", &["size"]),
    ("pad_to", &["size"]),
    ("pad_to_largest", &["max_size", "multiple_of"]),
    ("sanitize_bounding_boxes", &["min_size", "min_area"]),
    ("convert_bounding_box_format", &["format", "normalized"]),
    ("random_apply", &["transforms", "p"]),
    ("random_choice", &["transforms", "p"]),
    ("random_order", &["transforms"]),
];

/// Names of interpolations, which may be given at any place.
const INTERPOLATIONS: [&str; 7] = ["nearest", "nearest_exact", "bilinear", "bicubic", "lanczos", "box", "random"];

/// Steps that take such a name.
const INTERPOLATED: [&str; 13] = [
    "resize_shorter",
    "resize_exact",
    "resize_keep_ratio",
    "random_resized_crop",
    "random_shortest_size",
    "scale_jitter",
    "random_rotation",
    "random_affine",
    "random_perspective",
    "rand_augment",
    "trivial_augment_wide",
    "auto_augment",
    "aug_mix",
];

/// Parses steps in one line, separated by `;`. A step is its name, or its name, `:` and settings separated by `,`. A
/// setting is
///
/// - a value, in the order of the step's documentation,
/// - `name=value`, or
/// - a word such as `bicubic` or `cifar10`.
///
/// A value is a number, a word, several numbers separated by `/` (`0.08/1`), or JSON in brackets. `random_apply`,
/// `random_choice` and `random_order` take steps in parentheses, which may be nested. `normalize` without settings uses
/// ImageNet's mean and deviation, `normalize:cifar10` those of CIFAR-10. The name of a preset stands for its steps.
///
/// ```
/// use infeed::transform::Transform;
///
/// let line: Transform = "random_resized_crop:176;horizontal_flip;trivial_augment_wide;normalize;random_erasing:0.1".parse()?;
/// let steps = Transform::new().random_resized_crop(176).horizontal_flip(0.5).trivial_augment_wide();
/// assert_eq!(line, steps.normalize(infeed::IMAGENET_MEAN, infeed::IMAGENET_STD).random_erasing(0.1));
///
/// let line: Transform = "imagenet-train;random_erasing:0.1".parse()?;
/// assert_eq!(line, Transform::preset("imagenet-train")?.random_erasing(0.1));
///
/// let line: Transform = "center_crop:224;random_order:(random_apply:(color_jitter:0.4,0.4,0.2,0.1),p=0.8;random_grayscale)".parse()?;
/// let jitter = Transform::new().color_jitter(0.4, 0.4, 0.2, 0.1);
/// let of = Transform::new().random_apply(&jitter, 0.8).random_grayscale(0.1);
/// assert_eq!(line, Transform::new().center_crop(224).random_order(&of));
/// # Ok::<(), infeed::Error>(())
/// ```
impl FromStr for Transform {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let steps = split(line, ';')?;
        let mut transform = Self::new();
        for (index, step) in steps.iter().enumerate() {
            let step = step.trim();
            // A `;` may follow the last step.
            if step.is_empty() && index + 1 == steps.len() {
                continue;
            }
            if PRESETS.contains(&step) {
                transform = Self::preset(step)?.ops().iter().cloned().fold(transform, Self::push);
                continue;
            }
            let op = one(step).map_err(|error| if steps.len() > 1 { error.in_step(index) } else { error });
            transform = transform.push(op?);
        }
        Ok(transform)
    }
}

/// Splits at separators outside of brackets and quotes.
fn split(text: &str, at: char) -> Result<Vec<&str>> {
    let (mut parts, mut start, mut open, mut quoted) = (Vec::new(), 0, Vec::new(), false);
    for (place, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => open.push(c),
            ')' | ']' | '}' => {
                let pairs = matches!((open.pop(), c), (Some('('), ')') | (Some('['), ']') | (Some('{'), '}'));
                if !pairs {
                    return Err(
                        Error::config(format!("{text:?} has an unmatched {c}")).with_hint("look at the brackets")
                    );
                }
            }
            _ if c == at && open.is_empty() => {
                parts.push(&text[start..place]);
                start = place + c.len_utf8();
            }
            _ => {}
        }
    }
    if quoted || !open.is_empty() {
        return Err(Error::config(format!("{text:?} has unclosed brackets or quotes")).with_hint("close them"));
    }
    parts.push(&text[start..]);
    Ok(parts)
}

fn one(step: &str) -> Result<Op> {
    otherwise_written(step)?;
    let (name, settings) = step.split_once(':').unwrap_or((step, ""));
    let name = name.trim();
    let places = PLACES.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, places)| places);
    known(name)?;
    let mut fields = Map::new();
    let mut place = 0;
    for setting in split(settings, ',')?.into_iter().map(str::trim).filter(|setting| !setting.is_empty()) {
        let named = setting.split_once('=').filter(|(key, _)| key.chars().all(|c| c.is_alphanumeric() || c == '_'));
        let (key, value) = match named {
            Some((key, value)) => (key.to_owned(), self::value(value.trim())?),
            None if INTERPOLATIONS.contains(&setting) && INTERPOLATED.contains(&name) => {
                ("interpolation".to_owned(), json!(setting))
            }
            None if name == "normalize" && matches!(setting, "imagenet" | "cifar10") => {
                fields.extend(statistics(setting));
                continue;
            }
            None => {
                let Some(key) = places.get(place) else {
                    let mut takes = format!("{name} takes ");
                    let _ = match places {
                        [] => write!(takes, "no settings without a name"),
                        _ => write!(takes, "{}", places.join(", ")),
                    };
                    return Err(Error::config(format!("{name} has one setting too many, {setting:?}")).with_hint(takes));
                };
                place += 1;
                ((*key).to_owned(), self::value(setting)?)
            }
        };
        if fields.insert(key.clone(), value).is_some() {
            return Err(Error::config(format!("{name} has {key} twice")).with_hint("give it once"));
        }
    }
    if name == "normalize" && fields.is_empty() {
        fields.extend(statistics("imagenet"));
    }
    fields.insert("op".to_owned(), json!(name));
    serde_json::from_value(Value::Object(fields)).map_err(|error| {
        let why = error.to_string();
        Error::config(format!("{step:?} is not a step: {why}")).with_hint(match places {
            [] => "write `name:setting=value,…`".to_owned(),
            _ => format!("{name} takes {} in this order, and the others by name", places.join(", ")),
        })
    })
}

/// Refuses a step that is written as a call, `random_resized_crop(224)`, and steps separated by `,`; the hint shows the
/// correct form.
fn otherwise_written(step: &str) -> Result<()> {
    if let Some((name, settings)) = step.split_once('(').filter(|(name, _)| is_known(name.trim())) {
        let (name, settings) = (name.trim(), settings.strip_suffix(')').unwrap_or(settings).trim());
        let line = match settings {
            "" => name.to_owned(),
            steps if begins_step(steps) => format!("{name}:({steps})"),
            _ => format!("{name}:{settings}"),
        };
        return Err(Error::config(format!("{step:?} is not a step")).with_hint(format!("write `{line}`: {SYNTAX}")));
    }
    let parts = split(step, ',')?;
    let [first, rest @ ..] = &parts[..] else { return Ok(()) };
    if begins_step(first) && rest.iter().any(|part| begins_step(part)) {
        let mut line = first.trim().to_owned();
        for part in rest {
            line.push(if begins_step(part) { ';' } else { ',' });
            line.push_str(part.trim());
        }
        return Err(Error::config(format!("{step:?} has several steps")).with_hint(format!("write `{line}`: {SYNTAX}")));
    }
    Ok(())
}

/// Whether the text is a step, or begins like one. Names of settings are not.
fn begins_step(text: &str) -> bool {
    is_known(text.split([':', '(']).next().unwrap_or_default().trim())
}

/// The syntax of a line, for hints.
const SYNTAX: &str =
    "write settings after `:` and `;` between steps, as in `random_resized_crop:224,bicubic;normalize`";

/// Whether it is the name of a step or of a preset.
fn is_known(name: &str) -> bool {
    PRESETS.contains(&name) || refused(name).is_none()
}

/// The error for a name that no step has.
fn refused(name: &str) -> Option<String> {
    // A known step without its settings may be refused too, but with another error.
    let error = serde_json::from_value::<Op>(json!({ "op": name })).err()?.to_string();
    error.starts_with("unknown variant").then_some(error)
}

/// Refuses an unknown step, whatever its settings.
fn known(name: &str) -> Result<()> {
    if VIEW_PRESETS.contains(&name) {
        return Err(Error::config(format!("{name} is several views of an image, not a step")).with_hint(
            match Front::here() {
                Front::Library => format!("use it by itself: View::preset({name:?}) for LoaderBuilder::views"),
                _ => format!("use it by itself: {}", TRANSFORM.to(name)),
            },
        ));
    }
    let Some(why) = refused(name) else { return Ok(()) };
    // "unknown variant `x`, expected one of `resize_shorter`, …" lists all steps, also those without settings.
    let steps = why.split('`').skip(3).step_by(2);
    // If it is written as a call, the name before the bracket.
    let called = name.split('(').next().unwrap_or(name);
    let hint = match nearest(called, PRESETS.into_iter().chain(VIEW_PRESETS).chain(steps)) {
        Some(near) if called == name => format!("did you mean {near}?"),
        Some(near) => format!("did you mean {near}? {SYNTAX}"),
        None => {
            let names = PLACES.map(|(name, _)| name).join(", ");
            let steps = format!("steps: {names}, and the others of transform::Op");
            format!("use one of {}; or {steps}; {SYNTAX}", PRESETS.join(", "))
        }
    };
    Err(Error::config(format!("there is no transform and no step {name:?}")).with_hint(hint))
}

fn statistics(of: &str) -> Map<String, Value> {
    let (mean, std) = if of == "cifar10" { (CIFAR10_MEAN, CIFAR10_STD) } else { (IMAGENET_MEAN, IMAGENET_STD) };
    Map::from_iter([("mean".to_owned(), json!(mean)), ("std".to_owned(), json!(std))])
}

/// A number, numbers between slashes, steps in parentheses, JSON, or a word.
fn value(text: &str) -> Result<Value> {
    if let Some(steps) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        let steps: Transform = steps.parse()?;
        return serde_json::to_value(steps).map_err(|error| Error::config(format!("{text:?}: {error}")));
    }
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    let numbers: Option<Vec<Value>> = text.split('/').map(|part| serde_json::from_str(part).ok()).collect();
    Ok(numbers.filter(|numbers| numbers.len() > 1).map_or_else(|| json!(text), Value::Array))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_calls_or_commas_is_told_the_syntax() {
        let refused = |line: &str, words: &[&str]| {
            let said = line.parse::<Transform>().unwrap_err().to_string();
            assert!(words.iter().all(|word| said.contains(word)), "{line}: {said}");
        };
        let call = |line, meant: &str| refused(line, &["is not a step", &format!("write `{meant}`: {SYNTAX}")]);
        call("random_resized_crop(224)", "random_resized_crop:224");
        call("horizontal_flip()", "horizontal_flip");
        call("random_apply(color_jitter:0.4,0.4)", "random_apply:(color_jitter:0.4,0.4)");
        refused("center_crop:8;random_invert(0.5)", &["write `random_invert:0.5`: ", "(step 2)"]);
        refused("horizontal_flop(0.5)", &["no step \"horizontal_flop(0.5)\"", "did you mean horizontal_flip?", SYNTAX]);
        refused("nothing_like_it(3)", &["use one of imagenet-train", SYNTAX]);
        for (line, meant) in [
            ("random_resized_crop:224,horizontal_flip", "random_resized_crop:224;horizontal_flip"),
            ("resize_shorter:256,bicubic, center_crop:224", "resize_shorter:256,bicubic;center_crop:224"),
            (
                "random_invert, random_apply:(color_jitter:0.4,0.4),1",
                "random_invert;random_apply:(color_jitter:0.4,0.4),1",
            ),
            ("imagenet-train,random_erasing:0.1", "imagenet-train;random_erasing:0.1"),
        ] {
            refused(line, &["has several steps", &format!("write `{meant}`: {SYNTAX}")]);
            assert!(meant.parse::<Transform>().is_ok(), "{meant}");
        }
        // The example in the syntax is a valid line.
        assert!(SYNTAX.rsplit('`').nth(1).is_some_and(|line| line.parse::<Transform>().is_ok()));
    }
}
