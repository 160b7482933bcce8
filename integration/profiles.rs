//! What users get is built to be fast, whatever makes the tests' own build short.

use crate::support::repository;

/// Without LTO among the units of a crate photographs are decoded at a third of the speed.
#[test]
fn release_builds_do_not_take_the_short_cuts_of_the_tests() {
    let manifest: toml::Table = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap().parse().unwrap();
    let profiles = &manifest["profile"];
    assert_eq!(
        profiles["dev"].get("lto").and_then(toml::Value::as_str),
        Some("off"),
        "or this test is of no use any more"
    );
    assert_eq!(
        profiles["release"].get("lto").and_then(toml::Value::as_bool),
        Some(false),
        "thin LTO within each crate"
    );
    for name in ["release", "bench", "kit"] {
        let Some(profile) = profiles.get(name) else { continue };
        let kept = profile.get("inherits").is_none_or(|of| of.as_str() == Some("release"));
        assert!(kept && profile.get("lto").is_none_or(|lto| lto.as_str() != Some("off")), "{name}");
        // One of a crate that computes pixels.
        let of = |package: &str| {
            profile.get("package").and_then(|all| all.get(package)).and_then(|one| one.get("opt-level"))
        };
        assert_eq!((of("infeed"), of("infeed-jpeg"), of("*")), (None, None, None), "{name}");
    }
}
