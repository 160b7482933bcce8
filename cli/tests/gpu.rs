//! The binary on the mock GPU.

use std::process::Output;

use serde_json::Value;

use crate::{
    command::{self, text},
    support::mock::mock_env,
};

/// The binary on the mock GPU; `None` without a C++ compiler. nvJPEG decodes nothing there, so files go to the CPU.
fn infeed(args: &[&str]) -> Option<Output> {
    infeed_with(&[], args)
}

/// The same with more variables.
fn infeed_with(more: &[(&str, &str)], args: &[&str]) -> Option<Output> {
    let mut command = command::infeed();
    command.env_remove("CUDA_VISIBLE_DEVICES").envs(mock_env()?).envs(more.iter().copied());
    Some(command.args(args).output().expect("the binary starts"))
}

fn report(args: &[&str]) -> Option<Value> {
    let args = [&["run"], args, &["--json", "-", "--checksum", "--seed", "3", "--shuffle", "1"]].concat();
    let output = infeed(&args)?;
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// `infeed inspect --devices` on the mock.
fn inspect(env: &[(&str, &str)]) -> Option<String> {
    let output = infeed_with(env, &["inspect", "--devices"])?;
    assert!(output.status.success(), "{output:?}");
    Some(text(&output.stdout))
}

#[test]
fn the_binary_finds_the_mock_gpu() {
    let two = [("INFEED_MOCK_DEVICES", "2"), ("INFEED_MOCK_MEMORY", "8589934592")];
    let Some(seen) = inspect(&two) else { return };
    assert!(
        seen.starts_with("cuda:0: infeed mock GPU 0, 8.0 GiB, compute 9.0, driver for CUDA 13.0\ncuda:1: "),
        "{seen}"
    );
    assert!(seen.contains("nvJPEG 13.0.0 ("), "{seen}");
}

#[test]
fn the_binary_tells_why_there_is_no_gpu() {
    let Some(seen) = inspect(&[("INFEED_MOCK_DEVICES", "0")]) else { return };
    assert!(seen.starts_with("no GPU: the driver sees no GPU"), "{seen}");
}

#[test]
fn the_command_line_runs_on_a_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos").to_str().unwrap().to_owned();
    let Some(made) = infeed(&["synth", "imagenet", &photos, "--count", "24"]) else { return };
    assert!(made.status.success());
    let pixels = "synthetic://?count=300&height=40&width=60&classes=10".to_owned();
    for (url, transform) in [(&pixels, "cifar-train"), (&photos, "imagenet-train")] {
        let common = [url.as_str(), "--transform", transform, "--batch-size", "8"];
        let with = |device: &[&str]| report(&[&common, device].concat()).unwrap();
        let cpu = with(&["--device", "cpu"]);
        let fixed = with(&["--device", "cuda:0", "--split", "fixed"]);
        let adaptive = with(&["--device", "auto"]);
        assert_eq!(
            (&cpu["device"], &fixed["device"], &adaptive["device"]),
            (&"cpu".into(), &"cuda:0".into(), &"cuda:0".into())
        );
        assert_eq!(with(&[])["device"], "cpu");
        // nvJPEG decodes nothing here, and rows that the CPU makes are the same wherever their batch lies.
        assert_eq!(cpu["checksum"], fixed["checksum"], "{url}");
        assert_eq!((&fixed["checksum_of"], &adaptive["checksum_of"]), (&"rows".into(), &"records".into()));
        assert_ne!(adaptive["checksum"], fixed["checksum"]);
        assert_eq!(adaptive["samples"], cpu["samples"]);
        assert_eq!(cpu["decoded_by"], serde_json::json!({ "cpu": cpu["samples"] }));
        for gpu in [&fixed, &adaptive] {
            let by = gpu["decoded_by"].as_object().unwrap();
            let classes: Vec<_> = by.keys().map(String::as_str).collect();
            let all = if *url == pixels { &["cpu"][..] } else { &["cpu", "nvjpeg-hardware"] };
            assert_eq!(classes, all);
            assert_eq!(by.values().filter_map(Value::as_u64).sum::<u64>(), gpu["samples"], "{by:?}");
        }
        let transform = |report: &Value| {
            let stages = report["stages"].as_array().unwrap();
            stages.iter().find(|stage| stage["name"] == "transform").unwrap()["device"].as_f64().unwrap()
        };
        assert!(transform(&cpu) == 0.0 && transform(&fixed) > 0.0);
    }
    let common = [photos.as_str(), "--transform", "imagenet-train", "--batch-size", "8", "--device", "cuda:0"];
    let alone = report(&[&common[..], &["--decode", "cpu"]].concat()).unwrap();
    assert_eq!((&alone["decoded_by"], &alone["checksum_of"]), (&serde_json::json!({ "cpu": 24 }), &"rows".into()));
    let whole = report(&[&common[..], &["--decode", "gpu", "--decode-cut", "off"]].concat()).unwrap();
    let set = (&whole["config"]["decode"], &whole["config"]["decode_cut"]);
    assert_eq!(set, (&"gpu".into(), &false.into()));
    let config = folder.path().join("cpu.toml");
    std::fs::write(&config, "decode = \"cpu\"\ndecode_cut = false\n").unwrap();
    let by_file = report(&[&common[..], &["--config", config.to_str().unwrap()]].concat()).unwrap();
    assert_eq!((&by_file["decoded_by"], &by_file["checksum"]), (&alone["decoded_by"], &alone["checksum"]));
    let devices = infeed(&["inspect", "--devices"]).unwrap();
    let words = text(&devices.stdout);
    assert!(words.contains("cuda:0: ") && words.contains("GiB") && words.contains("nvJPEG 13"), "{words}");
    let absent = infeed(&["run", &pixels, "--device", "cuda:7"]).unwrap();
    assert_eq!(absent.status.code(), Some(1));
    let words = text(&absent.stderr);
    assert!(words.contains("no cuda:7: this machine has 1 GPU"), "{words}");
}

#[test]
fn jpegs_that_the_cpu_decodes_for_want_of_nvjpeg_are_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos").to_str().unwrap().to_owned();
    let Some(made) = infeed(&["synth", "imagenet", &photos, "--count", "24"]) else { return };
    assert!(made.status.success());
    let drawings = folder.path().join("drawings");
    std::fs::create_dir_all(drawings.join("a")).unwrap();
    image::RgbImage::new(30, 20).save(drawings.join("a/1.png")).unwrap();
    let told = |url: &str, more: &[(&str, &str)]| {
        let args = ["run", url, "--transform", "resize_exact:8", "--batch-size", "1", "--epochs", "2", "--quiet"];
        let output = infeed_with(more, &[&args[..], &["--device", "cuda:0"]].concat()).unwrap();
        let words = text(&output.stderr);
        assert!(output.status.success(), "{words}");
        words
    };
    let nowhere = [("INFEED_NVJPEG", "/nowhere/libnvjpeg.so.13")];
    let words = told(&photos, &nowhere);
    let expected =
        "JPEGs are decoded on the CPU: INFEED_NVJPEG: /nowhere/libnvjpeg.so.13 not found; name another library";
    assert_eq!(words.matches("JPEGs are decoded").count(), 1, "{words}");
    assert!(words.contains(expected), "{words}");
    // Nothing is missed where there is none to decode, nor where there is all.
    assert!(!told(drawings.to_str().unwrap(), &nowhere).contains("JPEGs are decoded"));
    assert!(!told(&photos, &[("INFEED_MOCK_PIXELS", "100")]).contains("JPEGs are decoded"));
    // A GPU that has no engines lacks nothing that could be had; one that was cut in slices, and a driver too old, do.
    let no_engines = ("INFEED_MOCK_ENGINES", "0");
    let words = told(&photos, &[no_engines]);
    let lacks_video = words.contains("libnvcuvid.so.1 not found");
    assert_eq!(words.contains("JPEGs are decoded"), lacks_video, "{words}");
    let words = told(&photos, &[no_engines, ("INFEED_MOCK_NAME", "NVIDIA A30 MIG 1g.6gb")]);
    assert!(words.contains("JPEGs are decoded") && (lacks_video || words.contains("(+me)")), "{words}");
    let words = told(&photos, &[("INFEED_NVJPEG", ""), ("INFEED_MOCK_FAIL", "nvjpegCreateEx:0:6")]);
    assert!(words.contains("the driver is too old for it") && words.contains("update the driver"), "{words}");
}
