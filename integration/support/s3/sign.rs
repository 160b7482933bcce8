//! Checks SigV4 signatures: a client with a wrong secret has to be told so.
//!
//! After <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>.

use std::{
    fmt::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use sha2::{Digest, Sha256};

use super::http::Request;

/// What the Authorization header holds.
#[derive(Debug)]
pub(super) struct Signed {
    pub(super) access_key: String,
    pub(super) region: String,
    pub(super) signature: String,
    date: String,
    service: String,
    time: String,
    pub(super) headers: Vec<String>,
}

impl Signed {
    /// `None` without a signature.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let fields = request.header("authorization")?.strip_prefix("AWS4-HMAC-SHA256")?;
        let field = |name: &str| {
            fields.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        let credential = field("Credential")?;
        let mut parts = credential.rsplitn(5, '/');
        let (_, service, region, date) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            access_key: parts.next()?.to_owned(),
            region: region.to_owned(),
            signature: field("Signature")?,
            date: date.to_owned(),
            service: service.to_owned(),
            time: request.header("x-amz-date")?.to_owned(),
            headers: field("SignedHeaders")?.split(';').map(str::to_owned).collect(),
        })
    }

    /// Seconds since it was signed, by a clock that is `ahead` of ours.
    pub(super) fn age(&self, ahead: i64) -> i64 {
        let number =
            |range: std::ops::Range<usize>| self.time.get(range).and_then(|t| t.parse::<i64>().ok()).unwrap_or(0);
        let day = days(number(0..4), number(4..6), number(6..8));
        let signed = day * 86_400 + number(9..11) * 3600 + number(11..13) * 60 + number(13..15);
        now() + ahead - signed
    }
}

pub(super) fn canonical(request: &Request, signed: &Signed) -> String {
    let mut query: Vec<(String, String)> = request.query.iter().map(|(n, v)| (encode(n), encode(v))).collect();
    query.sort_unstable();
    let query: Vec<String> = query.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut text = format!("{}\n{}\n{}\n", request.method, request.raw_path, query.join("&"));
    for name in &signed.headers {
        let _ = writeln!(text, "{name}:{}", request.header(name).unwrap_or_default());
    }
    let payload = request.header("x-amz-content-sha256").unwrap_or("UNSIGNED-PAYLOAD");
    let _ = write!(text, "\n{}\n{payload}", signed.headers.join(";"));
    text
}

pub(super) fn signature(signed: &Signed, secret: &str, canonical: &str) -> String {
    let Signed { date, region, service, time, .. } = signed;
    let digest = hex(&Sha256::digest(canonical.as_bytes()));
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{date}/{region}/{service}/aws4_request\n{digest}");
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in [date, region, service, "aws4_request"] {
        key = hmac(&key, part.as_bytes());
    }
    hex(&hmac(&key, text.as_bytes()))
}

/// RFC 2104 with SHA-256, for keys of at most 64 bytes.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let pad = |byte: u8| (0..64).map(|i| key.get(i).unwrap_or(&0) ^ byte).collect::<Vec<u8>>();
    let inner = Sha256::digest([pad(0x36).as_slice(), message].concat());
    Sha256::digest([pad(0x5c).as_slice(), &inner].concat()).to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
        encoded
    })
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| i64::try_from(t.as_secs()).unwrap_or(0))
}

/// Days since 1970-01-01 of a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Now, as HTTP writes it. The weekday and date are found by counting.
pub(super) fn http_date() -> String {
    let now = now();
    let (day, second) = (now.div_euclid(86_400), now.rem_euclid(86_400));
    let names = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut year = 1970 + day / 366;
    while days(year + 1, 1, 1) <= day {
        year += 1;
    }
    let month = (1..=12).rev().find(|&m| days(year, m, 1) <= day).unwrap_or(1);
    let of_month = day - days(year, month, 1) + 1;
    let name = names[usize::try_from(day.rem_euclid(7)).unwrap_or(0)];
    let month = months[usize::try_from(month - 1).unwrap_or(0)];
    format!("{name}, {of_month:02} {month} {year} {:02}:{:02}:{:02} GMT", second / 3600, second / 60 % 60, second % 60)
}
