//! Steps in one line, and as JSON.
#![no_main]

use infeed::{Transform, transform::View};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = text.parse::<Transform>();
    let _ = serde_json::from_str::<Transform>(text);
    let _ = serde_json::from_str::<Vec<View>>(text);
});
