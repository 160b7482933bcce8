//! Reads settings from JSON, with errors in Python's terms.
//!
//! serde's errors name Rust types and positions in a JSON text that the user did not write. Here they become
//! `mix['mixup']='a': must be a number`.

use pyo3::{exceptions::PyTypeError, prelude::*};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Returns the error of the settings with a given value in place.
type Failure<'a> = &'a dyn Fn(&Value) -> Option<String>;

/// Settings, or the exception that names the argument, its value, and what it takes.
pub(crate) fn read<T: DeserializeOwned>(py: Python<'_>, json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| {
        let said = error.to_string();
        let whole: Value = serde_json::from_str(json).unwrap_or_default();
        let failure = |value: &Value| T::deserialize(value).err().map(|error| error.to_string());
        match failure(&whole) {
            Some(error) => raised(py, &Wrong::of(&whole, error, &failure)),
            None => PyTypeError::new_err(said),
        }
    })
}

/// An invalid value.
struct Wrong {
    /// The keys and indices that lead to it, innermost first.
    place: Vec<String>,
    value: Value,
    error: String,
}

impl Wrong {
    /// The innermost value that causes the error: without it the error is gone.
    fn of(value: &Value, error: String, failure: Failure<'_>) -> Self {
        let has_keys = |value: &Value| match value {
            Value::Object(_) => true,
            Value::Array(items) => items.iter().any(Value::is_object),
            _ => false,
        };
        // Only a dict can lack a key.
        let missing = error.starts_with("missing field");
        match value {
            Value::Object(map) => {
                let is_gone = |without: Map<String, Value>| failure(&Value::Object(without)).as_ref() != Some(&error);
                let mut keys: Vec<&String> = map.keys().filter(|key| !missing || has_keys(&map[*key])).collect();
                // `op` last: without a step's name every error changes.
                keys.sort_by_key(|key| *key == "op");
                let found = keys.iter().find(|key| {
                    let mut without = map.clone();
                    without.remove(**key);
                    is_gone(without)
                });
                // If two keys cause the same error, removing one does not remove it, but each key alone causes it.
                let alone =
                    |key: &&&String| !missing && !is_gone(Map::from_iter([((**key).clone(), map[**key].clone())]));
                if let Some(key) = found.or_else(|| keys.iter().find(alone)) {
                    let inner = |value: &Value| {
                        let mut changed = map.clone();
                        changed.insert((*key).clone(), value.clone());
                        failure(&Value::Object(changed))
                    };
                    return Self::of(&map[*key], error, &inner).within((*key).clone());
                }
            }
            Value::Array(items) if has_keys(value) => {
                let inner = |value: &Value| failure(&Value::Array(vec![value.clone()]));
                if let Some(at) = items.iter().position(|item| inner(item).as_ref() == Some(&error)) {
                    return Self::of(&items[at], error, &inner).within(at.to_string());
                }
            }
            _ => {}
        }
        // serde lists the names of an enum only for a string.
        let names = (error.ends_with("expected string or map")).then(|| failure(&Value::from("?"))).flatten();
        let names = names.filter(|error| error.starts_with("unknown variant"));
        let error = match names {
            Some(names) => format!("invalid type: it, expected one of {}", listed(&quoted(&names)[1..])),
            None => error,
        };
        Self { place: Vec::new(), value: value.clone(), error }
    }

    fn within(mut self, key: String) -> Self {
        self.place.push(key);
        self
    }

    /// The place as a Python expression: `order['repeated']['seed']`.
    fn called(&self, place: &[String]) -> String {
        let mut keys = place.iter().rev();
        let name = match keys.next().map(String::as_str) {
            None => return String::new(),
            Some("workers") => "num_workers".to_owned(),
            Some(name) => name.to_owned(),
        };
        keys.fold(name, |name, key| match key.parse::<usize>() {
            Ok(at) => format!("{name}[{at}]"),
            Err(_) => format!("{name}['{key}']"),
        })
    }
}

/// The quoted names in serde's message.
fn quoted(error: &str) -> Vec<&str> {
    error.split('`').skip(1).step_by(2).collect()
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

fn raised(py: Python<'_>, found: &Wrong) -> PyErr {
    let Wrong { place, value, error } = found;
    let with_value = format!("{}={}", found.called(place), python(value));
    let key = place.first().map_or("", String::as_str);
    let (is_type, words) = match quoted(error).split_first() {
        Some((name, known)) if error.starts_with("unknown ") && *name == key => {
            let outer = found.called(&place[1..]);
            (error.starts_with("unknown field"), format!("{outer}: there is no '{name}', but {}", listed(known)))
        }
        Some((_, known)) if error.starts_with("unknown ") => {
            (false, format!("{with_value}: must be one of {}", listed(known)))
        }
        Some((name, _)) if error.starts_with("missing field") => (false, format!("{with_value}: '{name}' is missing")),
        _ => match error.split_once(", expected ") {
            Some((found, takes)) if error.starts_with("invalid ") => {
                (found.starts_with("invalid type"), format!("{with_value}: must be {}", taken(takes, key)))
            }
            _ => {
                (false, format!("{with_value}: {}", error.strip_prefix("config: ").unwrap_or(error).replace('`', "'")))
            }
        },
    };
    if is_type {
        return PyTypeError::new_err(words);
    }
    wrong(py, &words)
}

/// A `ConfigError` for an invalid value.
pub(crate) fn wrong(py: Python<'_>, words: &str) -> PyErr {
    let made = || py.import("infeed.errors")?.getattr("ConfigError")?.call1((words,));
    made().map_or_else(|failed| failed, PyErr::from_value)
}

/// What serde expects, without Rust's terms.
fn taken(expected: &str, key: &str) -> String {
    let is_bytes = key.ends_with("_budget") || key.ends_with("_bytes");
    match expected {
        "usize" | "u8" | "u16" | "u32" | "u64" if is_bytes => "a whole number of bytes, not negative",
        "usize" | "u8" | "u16" | "u32" | "u64" => "a whole number, not negative",
        "isize" | "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" | "string" | "path string" | "a char" | "a character" => "a str",
        "a boolean" => "True or False",
        "a sequence" => "a list",
        "a map" | "map" | "map with a single key" => "a dict",
        "string or map" => "a str or a dict",
        other => {
            let length = other.strip_prefix("an array of length ").or_else(|| other.strip_prefix("a tuple of size "));
            if let Some(length) = length {
                return format!("a list of {length}");
            }
            match other.split(' ').next() {
                Some("enum" | "unit") => "a str or a dict",
                Some("struct" | "tuple" | "internally" | "variant" | "newtype") => "a dict",
                _ => return other.to_owned(),
            }
        }
    }
    .to_owned()
}

/// A value as Python shows it.
fn python(value: &Value) -> String {
    const LONGEST: usize = 60;
    let joined = |parts: Vec<String>| parts.join(", ");
    let text = match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("'{text}'"),
        Value::Array(items) => format!("[{}]", joined(items.iter().map(python).collect())),
        Value::Object(map) => {
            format!("{{{}}}", joined(map.iter().map(|(key, value)| format!("'{key}': {}", python(value))).collect()))
        }
    };
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
