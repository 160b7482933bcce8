//! The settings of a run as text: with units, no more digits than were given, and one line per step of a transform.

use serde_json::{Map, Value};

use crate::units;

/// Names and values of all settings that are set.
pub(super) fn rows(config: &Map<String, Value>) -> Vec<Vec<String>> {
    let set = config.iter().filter(|(_, value)| !is_nothing(value));
    set.map(|(key, value)| vec![key.clone(), words(key, value)]).collect()
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(items) => items.is_empty(),
        _ => false,
    }
}

/// The text of a value. The name of its setting decides the unit.
fn words(key: &str, value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(bytes), _) if key == "size" && bytes >= 1 << 20 => units::size(bytes),
            (Some(bytes), _) if key.ends_with("bytes") || key.ends_with("budget") => units::size(bytes),
            // Seeds have no thousands separators, so that they can be typed again.
            (Some(seed), _) if key.ends_with("seed") => seed.to_string(),
            (_, Some(seconds)) if key.ends_with("time") => match seconds {
                0.0 => "0 s".into(),
                seconds => units::time(seconds),
            },
            (Some(whole), _) => units::count(whole),
            (_, Some(number)) => units::number(number),
            _ => number.to_string(),
        },
        // Steps go on separate lines, numbers on one line.
        Value::Array(items) => {
            let between = if items.iter().any(Value::is_object) { "\n" } else { ", " };
            items.iter().map(|item| words(key, item)).collect::<Vec<_>>().join(between)
        }
        Value::Object(items) => {
            let name = ["op", "name"].into_iter().find_map(|key| Some((key, items.get(key)?.as_str()?)));
            let rest =
                items.iter().filter(|(key, value)| name.is_none_or(|(known, _)| known != *key) && !is_nothing(value));
            let rest = rest.map(|(key, value)| match value {
                // An empty object has only its name.
                Value::Object(inner) if inner.is_empty() => key.clone(),
                Value::Object(_) => format!("{key}: {}", words(key, value)),
                _ => format!("{key} {}", words(key, value)),
            });
            let rest = rest.collect::<Vec<_>>().join("; ");
            match (name, rest.as_str()) {
                (Some((_, name)), "") => name.to_owned(),
                (Some((_, name)), rest) => format!("{name}: {rest}"),
                (None, rest) => rest.to_owned(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_have_units_and_no_digits_that_nobody_gave() {
        let config = json!({
            "batch_size": 64,
            "memory_budget": 5_709_510_656_u64,
            "max_image_bytes": 1 << 30,
            "samples": 100_000,
            "step_time": 0.05,
            "autotune": true,
            "cache": null,
            "views": [],
            "order": { "random": { "seed": 12_345_678_901_u64 } },
            "decoded_cache": { "ram": { "size": 4_294_967_296_u64 } },
            "transform": [
                { "op": "random_crop", "size": [32, 32], "padding": 4 },
                { "op": "normalize", "mean": [0.485_000_014_305_114_75, 0.456], "std": [0.229_000_002_145_767_2] },
                { "op": "to_float" },
            ],
        });
        let rows = rows(config.as_object().unwrap());
        let find = |key: &str| rows.iter().find(|row| row[0] == key).map(|row| row[1].as_str());
        for (key, words) in [
            ("batch_size", Some("64")),
            ("memory_budget", Some("5.3 GiB")),
            ("max_image_bytes", Some("1.0 GiB")),
            ("samples", Some("100,000")),
            ("step_time", Some("50.0 ms")),
            ("autotune", Some("yes")),
            ("cache", None),
            ("views", None),
            ("order", Some("random: seed 12345678901")),
            ("decoded_cache", Some("ram: size 4.0 GiB")),
            (
                "transform",
                Some("random_crop: padding 4; size 32, 32\nnormalize: mean 0.485, 0.456; std 0.229\nto_float"),
            ),
        ] {
            assert_eq!(find(key), words, "{key}");
        }
    }
}
