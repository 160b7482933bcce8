//! Figures and spans reach an OpenTelemetry collector. The collector here knows as much of protobuf as it takes to find
//! names and sums.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use crate::{command, support::until};

const DATA: &str = "synthetic://?count=640&height=8&width=8&classes=10";

/// What came: path and body.
type Got = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// Answers each POST with 200 and an empty message.
fn collector() -> (String, Got) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, got) = (listener.local_addr().unwrap(), Got::default());
    let all = Arc::clone(&got);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, all) = (stream.unwrap(), Arc::clone(&all));
            thread::spawn(move || while take(&stream, &all).is_some() {});
        }
    });
    (format!("http://{address}"), got)
}

/// One request of a connection.
fn take(mut stream: &TcpStream, got: &Got) -> Option<()> {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let path = line.strip_prefix("POST ")?.split(' ').next()?.to_owned();
    let mut len = 0;
    loop {
        line.clear();
        lines.read_line(&mut line).ok()?;
        let head = line.trim().to_ascii_lowercase();
        if let Some(value) = head.strip_prefix("content-length:") {
            len = value.trim().parse().ok()?;
        }
        if let Some(kind) = head.strip_prefix("content-type:") {
            assert_eq!(kind.trim(), "application/x-protobuf");
        }
        if head.is_empty() {
            break;
        }
    }
    let mut body = vec![0; len];
    lines.read_exact(&mut body).ok()?;
    got.lock().unwrap().push((path, body));
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n").ok()
}

enum Field<'a> {
    Bytes(&'a [u8]),
    Fixed(u64),
    Other,
}

/// Fields of a message by number.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                break;
            }
        }
        value
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => {
                varint(&mut bytes);
                Field::Other
            }
            1 => {
                let (value, rest) = bytes.split_first_chunk::<8>().expect("eight bytes");
                bytes = rest;
                Field::Fixed(u64::from_le_bytes(*value))
            }
            2 => {
                let len = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(len);
                bytes = rest;
                Field::Bytes(value)
            }
            5 => {
                bytes = &bytes[4..];
                Field::Other
            }
            wire => panic!("wire type {wire} is none"),
        };
        all.push((key >> 3, field));
    }
    all
}

/// All messages at the end of a path of field numbers.
fn at<'a>(bytes: &'a [u8], path: &[u64]) -> Vec<&'a [u8]> {
    let Some((first, rest)) = path.split_first() else { return vec![bytes] };
    let inside = fields(bytes).into_iter().filter_map(|(n, field)| match field {
        Field::Bytes(bytes) if n == *first => Some(bytes),
        _ => None,
    });
    inside.flat_map(|bytes| at(bytes, rest)).collect()
}

fn strings(bytes: &[u8], path: &[u64]) -> BTreeSet<String> {
    at(bytes, path).into_iter().map(|text| String::from_utf8(text.to_vec()).expect("names are UTF-8")).collect()
}

fn infeed(endpoint: &str, more: &[(&str, &str)]) -> Command {
    let mut command = command::infeed();
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).envs(more.iter().copied());
    command.args(["run", DATA, "--batch-size", "64"]);
    command
}

fn run(endpoint: &str, more: &[(&str, &str)]) -> Output {
    infeed(endpoint, more).args(["--json", "-"]).output().unwrap()
}

/// Whole numbers of the last export, by metric; 0.25 and above of `ExportMetricsServiceRequest` alike: resource_metrics 1,
/// scope_metrics 2, metrics 2, sum 7 or gauge 5, data_points 1, as_int 6.
fn counts(body: &[u8]) -> BTreeMap<String, Vec<u64>> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for metric in at(body, &[1, 2, 2]) {
        let name = strings(metric, &[1]).pop_first().expect("a metric has a name");
        let points = [at(metric, &[7, 1]), at(metric, &[5, 1])].concat();
        let values = points.iter().flat_map(|point| fields(point)).filter_map(|(n, field)| match (n, field) {
            (6, Field::Fixed(value)) => Some(value),
            _ => None,
        });
        all.entry(name).or_default().extend(values);
    }
    all
}

#[test]
fn a_collector_gets_the_figures_and_the_spans_of_a_run() {
    let (endpoint, got) = collector();
    let told = run(&endpoint, &[("OTEL_RESOURCE_ATTRIBUTES", "team=vision")]);
    assert!(told.status.success(), "{}", command::text(&told.stderr));
    let report: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let got = got.lock().unwrap();
    let of = |path: &str| got.iter().filter(|(known, _)| known == path).map(|(_, body)| &body[..]).collect::<Vec<_>>();
    let (figures, spans) = (of("/v1/metrics"), of("/v1/traces"));
    let last = figures.last().unwrap();
    let counts = counts(last);
    for (name, key) in [("infeed_samples", "samples"), ("infeed_batches", "batches")] {
        assert_eq!(counts[name], [report[key].as_u64().unwrap()], "{name}");
    }
    for name in ["infeed_data_wait_seconds", "infeed_data_wait_bucket", "infeed_stage_busy_seconds"] {
        assert!(counts.contains_key(name), "{name} is missing: {:?}", counts.keys());
    }
    // All waits but the first, up to the infinite bound.
    assert_eq!(counts["infeed_data_wait_bucket"].iter().max(), Some(&9));
    // resource 1, attributes 1, key 1; the value's string 1 in 2.
    assert!(strings(last, &[1, 1, 1, 1]).contains("service.name"));
    let values = strings(last, &[1, 1, 1, 2, 1]);
    assert!(values.contains("infeed") && values.contains("vision"), "{values:?}");
    // resource_spans 1, scope_spans 2, spans 2, name 5.
    let names: BTreeSet<String> = spans.iter().flat_map(|body| strings(body, &[1, 2, 2, 5])).collect();
    assert!(names.contains("infeed.epoch") && names.contains("infeed.batch"), "{names:?}");
    let batches =
        spans.iter().flat_map(|body| at(body, &[1, 2, 2])).filter(|span| strings(span, &[5]).contains("infeed.batch"));
    // A batch's span has its epoch's as its parent (field 4).
    let parents: Vec<bool> = batches.map(|span| at(span, &[4]).iter().any(|id| id.len() == 8)).collect();
    assert_eq!(parents, [true; 10]);
}

#[test]
fn it_exports_while_a_run_lasts_too() {
    let (endpoint, got) = collector();
    let mut command = infeed(&endpoint, &[("OTEL_METRIC_EXPORT_INTERVAL", "50")]);
    let mut child = command.args(["--step-time", "2min"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // A stream that is gone has no queues and workers.
    let told = |name: &str| {
        let all = got.lock().unwrap();
        all.iter().any(|(path, body)| path == "/v1/metrics" && counts(body).contains_key(name))
    };
    until("they are not told", || told("infeed_queue_level") && told("infeed_workers"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_collector_that_is_not_there_costs_a_warning_and_not_the_run() {
    // Nobody listens there, nor will.
    let gone = "127.0.0.1:1";
    let told = run(&format!("https://{gone}"), &[("OTEL_EXPORTER_OTLP_TIMEOUT", "50")]);
    assert!(told.status.success(), "{told:?}");
    let told = run(&format!("http://{gone}"), &[("OTEL_EXPORTER_OTLP_TIMEOUT", "50")]);
    let words = command::text(&told.stderr);
    assert!(told.status.success(), "{words}");
    assert!(words.contains("OpenTelemetry"), "{words}");
}

#[test]
fn variables_of_the_standard_are_obeyed_and_what_is_not_offered_is_named() {
    let (endpoint, got) = collector();
    assert!(run(&endpoint, &[("OTEL_SDK_DISABLED", "true")]).status.success());
    assert!(got.lock().unwrap().is_empty());
    assert!(run(&endpoint, &[("OTEL_TRACES_EXPORTER", "none"), ("OTEL_SERVICE_NAME", "mine")]).status.success());
    {
        let got = got.lock().unwrap();
        assert!(!got.is_empty() && got.iter().all(|(path, _)| path == "/v1/metrics"));
        assert!(strings(&got[0].1, &[1, 1, 1, 2, 1]).contains("mine"));
    }
    for (name, value) in [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_METRICS_EXPORTER", "prometheus")] {
        let told = run(&endpoint, &[(name, value)]);
        let words = command::text(&told.stderr);
        assert_eq!(told.status.code(), Some(2), "{words}");
        assert!(words.contains(name) && words.contains(value), "{words}");
    }
}
