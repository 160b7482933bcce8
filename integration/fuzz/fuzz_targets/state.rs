//! A state that is read is written as what is read again.
#![no_main]

use infeed::LoaderState;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(state) = LoaderState::from_json(text) {
        assert_eq!(LoaderState::from_json(&state.to_json()).expect("just written"), state);
    }
});
