//! Tests each kind of bucket against a stand-in for AWS, written from the documents that the rows name.
//!
//! The stand-in behaves as Amazon documents S3: a directory bucket answers only within a session, lists in no order,
//! and supports neither `start-after` nor a prefix that ends within a name. It checks no signatures;
//! `integration/s3.rs` does that.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use infeed_core::error::{Error, ErrorKind};
use object_store::{
    ObjectStore, ObjectStoreExt,
    client::{HttpClient, HttpError, HttpRequest, HttpResponse, HttpService},
    path::Path,
};
use reqwest::StatusCode;

use super::{Connection, Remote, Vars};
use crate::Source;

const KEYS: [&str; 3] = ["p/a/1", "p/a/2", "p/b/1"];
/// 32 bytes in base64.
const CUSTOMER_KEY: &str = "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=";

#[derive(Clone, Debug, Default)]
struct Aws(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Method, url, and the headers in one text.
    log: Vec<(String, String, String)>,
    sessions: usize,
    /// A session ends after this many requests.
    lasts: Option<usize>,
    used: usize,
    objects: usize,
}

fn answer(status: u16, body: impl Into<Bytes>) -> HttpResponse {
    let body: Bytes = body.into();
    let length = body.len();
    let mut response = HttpResponse::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-length", length.into());
    response
}

fn refusal(status: u16, code: &str) -> HttpResponse {
    answer(status, format!("<Error><Code>{code}</Code><Message>no</Message></Error>"))
}

impl Aws {
    fn answer(&self, request: &HttpRequest) -> HttpResponse {
        let mut state = self.0.lock().unwrap();
        let url = url::Url::parse(&request.uri().to_string()).unwrap();
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        let query = |name: &str| url.query_pairs().find(|(n, _)| n == name).map(|(_, value)| value.into_owned());
        let headers = request.headers().iter().map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
        state.log.push((request.method().to_string(), url.to_string(), headers.collect()));
        let directory = url.host_str().unwrap().contains(".s3express-");
        let signed_by = |key: &str| header("authorization").contains(&format!("Credential={key}/"));
        if directory {
            if url.query() == Some("session") {
                if !signed_by("AKIAROW") || !header("x-amz-s3session-token").is_empty() {
                    return refusal(403, "AccessDenied");
                }
                state.sessions += 1;
                state.used = 0;
                let n = state.sessions;
                return answer(
                    200,
                    format!(
                        "<CreateSessionResult><Credentials><SessionToken>session{n}</SessionToken><SecretAccessKey>s\
                         </SecretAccessKey><AccessKeyId>ASIA{n}</AccessKeyId><Expiration>2036-01-01T00:00:00Z\
                         </Expiration></Credentials></CreateSessionResult>"
                    ),
                );
            }
            let n = state.sessions;
            if header("x-amz-s3session-token") != format!("session{n}") || !signed_by(&format!("ASIA{n}")) {
                return refusal(403, "AccessDenied");
            }
            state.used += 1;
            if state.lasts.is_some_and(|lasts| state.used > lasts) {
                return refusal(400, "ExpiredToken");
            }
        }
        if query("list-type").is_some() {
            let (prefix, delimiter) = (query("prefix").unwrap_or_default(), query("delimiter"));
            let within = !prefix.is_empty() && !prefix.ends_with('/');
            let other = delimiter.as_deref().is_some_and(|delimiter| delimiter != "/");
            if directory && (query("start-after").is_some() || within || other) {
                return refusal(400, "InvalidArgument");
            }
            let more = (0..state.objects).map(|n| format!("p/more/{n}"));
            let mut keys: Vec<String> = KEYS.iter().map(|key| (*key).to_owned()).chain(more).collect();
            keys.retain(|key| key.starts_with(&prefix));
            if directory {
                keys.reverse();
            }
            let mut entries: Vec<String> = Vec::new();
            for key in &keys {
                let entry = match key[prefix.len()..].split_once('/').filter(|_| delimiter.is_some()) {
                    Some((folder, _)) => format!("<CommonPrefixes><Prefix>{prefix}{folder}/</Prefix></CommonPrefixes>"),
                    None => format!(
                        "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size>\
                         <ETag>\"0123456789abcdef0123456789abcdef\"</ETag></Contents>"
                    ),
                };
                if entries.last() != Some(&entry) {
                    entries.push(entry);
                }
            }
            let start: usize = query("continuation-token").map_or(0, |token| token.parse().unwrap());
            let end = (start + 1000).min(entries.len());
            let next = match end < entries.len() {
                true => format!("<NextContinuationToken>{end}</NextContinuationToken>"),
                false => String::new(),
            };
            return answer(200, format!("<ListBucketResult>{}{next}</ListBucketResult>", entries[start..end].concat()));
        }
        if url.path().ends_with("/nothing") {
            return refusal(404, "NoSuchKey");
        }
        let mut response = answer(200, "1");
        let headers = response.headers_mut();
        // Not the MD5 of the body, because ETags of these kinds are not MD5s.
        headers.insert("etag", "\"0123456789abcdef0123456789abcdef\"".parse().unwrap());
        if !header("x-amz-server-side-encryption-customer-algorithm").is_empty() {
            headers.insert("x-amz-server-side-encryption-customer-algorithm", "AES256".parse().unwrap());
        }
        response
    }

    fn remote(&self, url: &str, variables: &[(&str, &str)]) -> Result<Remote, Error> {
        let rest = url.strip_prefix("s3://").unwrap();
        let (bucket, _) = super::halves(rest);
        super::check_bucket(bucket, url)?;
        let keys = [("AWS_ACCESS_KEY_ID", "AKIAROW"), ("AWS_SECRET_ACCESS_KEY", "secret")];
        let vars: Vars = keys.iter().chain(variables).copied().collect();
        Ok(Remote::new(bucket, url, vars).answered_by(HttpClient::new(self.clone())))
    }

    fn log(&self) -> Vec<(String, String, String)> {
        self.0.lock().unwrap().log.clone()
    }
}

#[async_trait]
impl HttpService for Aws {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        Ok(self.answer(&request))
    }
}

/// A kind of bucket.
struct Row {
    /// Path below `https://docs.aws.amazon.com/AmazonS3/latest/`, if there is a document.
    document: &'static str,
    bucket: &'static str,
    variables: &'static [(&'static str, &'static str)],
    endpoint: &'static str,
    /// The url requested by reading `p/a/1`.
    reads: &'static str,
    /// What its headers must contain.
    has: &'static [&'static str],
}

const USW2: (&str, &str) = ("AWS_REGION", "us-west-2");

const ROWS: &[Row] = &[
    Row {
        document: "userguide/VirtualHosting.html#path-style-access",
        bucket: "photos",
        variables: &[USW2],
        endpoint: "https://s3.us-west-2.amazonaws.com",
        reads: "https://s3.us-west-2.amazonaws.com/photos/p/a/1",
        has: &["us-west-2/s3/aws4_request", "x-amz-checksum-mode: ENABLED"],
    },
    Row {
        document: "userguide/VirtualHosting.html#virtual-hosted-style-access",
        bucket: "photos",
        variables: &[USW2, ("AWS_S3_ADDRESSING_STYLE", "virtual")],
        endpoint: "https://photos.s3.us-west-2.amazonaws.com",
        reads: "https://photos.s3.us-west-2.amazonaws.com/p/a/1",
        has: &[],
    },
    Row {
        document: "userguide/dual-stack-endpoints.html",
        bucket: "photos",
        variables: &[USW2, ("AWS_USE_DUALSTACK_ENDPOINT", "true")],
        endpoint: "https://s3.dualstack.us-west-2.amazonaws.com",
        reads: "https://s3.dualstack.us-west-2.amazonaws.com/photos/p/a/1",
        has: &[],
    },
    Row {
        document: "https://docs.aws.amazon.com/sdkref/latest/guide/feature-endpoints.html",
        bucket: "photos",
        variables: &[USW2, ("AWS_USE_FIPS_ENDPOINT", "true")],
        endpoint: "https://s3-fips.us-west-2.amazonaws.com",
        reads: "https://s3-fips.us-west-2.amazonaws.com/photos/p/a/1",
        has: &[],
    },
    Row {
        document: "userguide/transfer-acceleration-getting-started.html",
        bucket: "photos",
        variables: &[USW2, ("AWS_S3_USE_ACCELERATE_ENDPOINT", "true")],
        endpoint: "https://photos.s3-accelerate.amazonaws.com",
        reads: "https://photos.s3-accelerate.amazonaws.com/p/a/1",
        has: &["us-west-2/s3/aws4_request"],
    },
    Row {
        document: "https://docs.amazonaws.cn/en_us/aws/latest/userguide/endpoints-arns.html",
        bucket: "photos",
        variables: &[("AWS_REGION", "cn-north-1")],
        endpoint: "https://s3.cn-north-1.amazonaws.com.cn",
        reads: "https://s3.cn-north-1.amazonaws.com.cn/photos/p/a/1",
        has: &["cn-north-1/s3/aws4_request"],
    },
    Row {
        document: "https://docs.aws.amazon.com/govcloud-us/latest/UserGuide/govcloud-s3.html",
        bucket: "photos",
        variables: &[("AWS_REGION", "us-gov-west-1"), ("AWS_USE_FIPS_ENDPOINT", "true")],
        endpoint: "https://s3-fips.us-gov-west-1.amazonaws.com",
        reads: "https://s3-fips.us-gov-west-1.amazonaws.com/photos/p/a/1",
        has: &[],
    },
    Row {
        document: "userguide/ObjectsinRequesterPaysBuckets.html",
        bucket: "photos",
        variables: &[USW2, ("AWS_REQUEST_PAYER", "requester")],
        endpoint: "https://s3.us-west-2.amazonaws.com",
        reads: "https://s3.us-west-2.amazonaws.com/photos/p/a/1",
        has: &["x-amz-request-payer: requester"],
    },
    Row {
        document: "userguide/ServerSideEncryptionCustomerKeys.html",
        bucket: "photos",
        variables: &[USW2, ("AWS_SSE_CUSTOMER_KEY_BASE64", CUSTOMER_KEY)],
        endpoint: "https://s3.us-west-2.amazonaws.com",
        reads: "https://s3.us-west-2.amazonaws.com/photos/p/a/1",
        has: &[
            "x-amz-server-side-encryption-customer-algorithm: AES256",
            "x-amz-server-side-encryption-customer-key: a2tra2tra2tr",
            "x-amz-server-side-encryption-customer-key-md5: ",
        ],
    },
    Row {
        document: "https://docs.aws.amazon.com/sdkref/latest/guide/feature-dataintegrity.html",
        bucket: "photos",
        variables: &[USW2, ("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")],
        endpoint: "https://s3.us-west-2.amazonaws.com",
        reads: "https://s3.us-west-2.amazonaws.com/photos/p/a/1",
        has: &["! x-amz-checksum-mode"],
    },
    Row {
        document: "https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html",
        bucket: "photos",
        variables: &[
            USW2,
            ("AWS_ENDPOINT_URL", "https://elsewhere.example"),
            ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"),
        ],
        endpoint: "https://s3.us-west-2.amazonaws.com",
        reads: "https://s3.us-west-2.amazonaws.com/photos/p/a/1",
        has: &[],
    },
    Row {
        document: "userguide/privatelink-interface-endpoints.html",
        bucket: "photos",
        variables: &[USW2, ("AWS_ENDPOINT_URL_S3", "https://bucket.vpce-1a2b3c4d.s3.us-west-2.vpce.amazonaws.com/")],
        endpoint: "https://bucket.vpce-1a2b3c4d.s3.us-west-2.vpce.amazonaws.com",
        reads: "https://bucket.vpce-1a2b3c4d.s3.us-west-2.vpce.amazonaws.com/photos/p/a/1",
        has: &[],
    },
    Row {
        document: "userguide/access-points-naming.html#access-points-alias",
        bucket: "train-hrzrlukc5m36ft7okagglf3gmwluquse1b-s3alias",
        variables: &[USW2],
        endpoint: "https://train-hrzrlukc5m36ft7okagglf3gmwluquse1b-s3alias.s3.us-west-2.amazonaws.com",
        reads: "https://train-hrzrlukc5m36ft7okagglf3gmwluquse1b-s3alias.s3.us-west-2.amazonaws.com/p/a/1",
        has: &[],
    },
    Row {
        document: "userguide/using-access-points.html",
        bucket: "arn:aws:s3:us-west-2:123456789012:accesspoint/train",
        // The ARN determines the region.
        variables: &[("AWS_REGION", "eu-west-1")],
        endpoint: "https://train-123456789012.s3-accesspoint.us-west-2.amazonaws.com",
        reads: "https://train-123456789012.s3-accesspoint.us-west-2.amazonaws.com/p/a/1",
        has: &["us-west-2/s3/aws4_request"],
    },
    Row {
        document: "API/API_CreateSession.html",
        bucket: "train--usw2-az1--x-s3",
        variables: &[USW2],
        endpoint: "https://train--usw2-az1--x-s3.s3express-usw2-az1.us-west-2.amazonaws.com",
        reads: "https://train--usw2-az1--x-s3.s3express-usw2-az1.us-west-2.amazonaws.com/p/a/1",
        has: &["x-amz-s3session-token: session", "Credential=ASIA", "! x-amz-security-token"],
    },
    Row {
        document: "userguide/directory-bucket-lz-networking.html",
        bucket: "train--usw2-lax1-az1--x-s3",
        variables: &[USW2],
        endpoint: "https://train--usw2-lax1-az1--x-s3.s3express-usw2-lax1-az1.us-west-2.amazonaws.com",
        reads: "https://train--usw2-lax1-az1--x-s3.s3express-usw2-lax1-az1.us-west-2.amazonaws.com/p/a/1",
        has: &["x-amz-s3session-token: session"],
    },
    Row {
        document: "userguide/access-points-directory-buckets.html",
        bucket: "point--usw2-az1--xa-s3",
        // Directory buckets support neither.
        variables: &[USW2, ("AWS_REQUEST_PAYER", "requester"), ("AWS_SERVER_SIDE_ENCRYPTION", "AES256")],
        endpoint: "https://point--usw2-az1--xa-s3.s3express-usw2-az1.us-west-2.amazonaws.com",
        reads: "https://point--usw2-az1--xa-s3.s3express-usw2-az1.us-west-2.amazonaws.com/p/a/1",
        has: &["x-amz-s3session-token: session", "! x-amz-request-payer"],
    },
];

#[tokio::test]
async fn each_kind_of_bucket_is_listed_and_read_as_its_document_says() {
    for Row { document, bucket, variables, endpoint, reads, has } in ROWS {
        let aws = Aws::default();
        let remote = aws.remote(&format!("s3://{bucket}/p"), variables).unwrap_or_else(|e| panic!("{document}: {e}"));
        let mut listed: Vec<_> = remote.list(Some(&Path::from("p"))).try_collect().await.unwrap();
        listed.sort_by(|a, b| a.location.cmp(&b.location));
        assert_eq!(listed.iter().map(|meta| meta.location.as_ref()).collect::<Vec<_>>(), KEYS, "{document}");
        let read = remote.get(&"p/a/1".into()).await.unwrap_or_else(|e| panic!("{document}: {e}"));
        assert_eq!(read.bytes().await.unwrap(), "1", "{document}");
        let Connection { endpoint: shown, .. } = remote.connection().unwrap();
        assert_eq!(shown, *endpoint, "{document}");
        let log = aws.log();
        let (_, url, headers) = log.last().unwrap();
        assert_eq!(url, reads, "{document}");
        for word in *has {
            let (word, there) = word.strip_prefix("! ").map_or((*word, true), |word| (word, false));
            assert_eq!(headers.contains(word), there, "{document}: {word} in {headers}");
        }
    }
}

#[tokio::test]
async fn what_is_written_is_encrypted_as_the_variables_say() {
    let sent = async |bucket: &str, variables: &[(&str, &str)]| {
        let aws = Aws::default();
        let remote = aws.remote(&format!("s3://{bucket}/p"), variables).unwrap();
        remote.put(&"p/new".into(), "1".into()).await.unwrap();
        aws.log().pop().unwrap().2
    };
    let kms = ("AWS_SSE_KMS_KEY_ID", "arn:aws:kms:us-west-2:123456789012:key/mine");
    let headers = sent("photos", &[USW2, kms, ("AWS_SSE_BUCKET_KEY_ENABLED", "true")]).await;
    for header in [
        "x-amz-server-side-encryption: aws:kms",
        "x-amz-server-side-encryption-aws-kms-key-id: arn:aws:kms:us-west-2:123456789012:key/mine",
        "x-amz-server-side-encryption-bucket-key-enabled: true",
    ] {
        assert!(headers.contains(header), "{headers}");
    }
    assert!(sent("photos", &[USW2, ("AWS_SSE_CUSTOMER_KEY_BASE64", CUSTOMER_KEY)]).await.contains("-customer-key:"));
    // Encryption is set when the bucket is created.
    assert!(!sent("train--usw2-az1--x-s3", &[USW2, kms]).await.contains("server-side-encryption"));
}

/// Url, variables, and the expected error.
type Refused<'a> = (&'a str, &'a [(&'a str, &'a str)], ErrorKind, &'a str);

#[tokio::test]
async fn what_is_not_read_is_refused_by_name_and_without_a_request() {
    let express = "s3://train--usw2-az1--x-s3/p";
    let rows: &[Refused<'_>] = &[
        (express, &[], ErrorKind::Config, "set AWS_REGION"),
        (express, &[USW2, ("AWS_ENDPOINT_URL", "https://x.example")], ErrorKind::Unsupported, "zone's own endpoint"),
        (express, &[USW2, ("AWS_USE_FIPS_ENDPOINT", "1")], ErrorKind::Unsupported, "zone's own endpoint"),
        (express, &[USW2, ("AWS_SSE_CUSTOMER_KEY_BASE64", CUSTOMER_KEY)], ErrorKind::Unsupported, "SSE-C"),
        ("s3://arn:aws:s3::123456789012:accesspoint/m.mrap/p", &[], ErrorKind::Unsupported, "SigV4A"),
        ("s3://arn:aws:s3:::photos/p", &[], ErrorKind::Config, "not of an access point"),
        (
            "s3://arn:aws:s3:us-west-2:123456789012:accesspoint/train/p",
            &[("AWS_REGION", "eu-west-1"), ("AWS_S3_USE_ARN_REGION", "false")],
            ErrorKind::Config,
            "keeps requests in eu-west-1",
        ),
        (
            "s3://bucket/x",
            &[USW2, ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true"), ("AWS_ENDPOINT_URL", "https://127.0.0.1:9000")],
            ErrorKind::Config,
            "is an address",
        ),
        (
            "s3://my_bucket/x",
            &[USW2, ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")],
            ErrorKind::Config,
            "cannot be part of a host",
        ),
        ("s3://bucket/x", &[("AWS_REGION", "us west")], ErrorKind::Config, "is not a region"),
        ("s3://bucket/x", &[USW2, ("AWS_SESSION_TOKEN", "a\nb")], ErrorKind::Config, "AWS_SESSION_TOKEN holds a line"),
        ("s3://bucket/x", &[USW2, ("AWS_S3_ADDRESSING_STYLE", "host")], ErrorKind::Config, "path, virtual or auto"),
        ("s3://bucket/x", &[USW2, ("AWS_RESPONSE_CHECKSUM_VALIDATION", "no")], ErrorKind::Config, "when_required"),
    ];
    for (url, variables, kind, says) in rows {
        let aws = Aws::default();
        let error = match aws.remote(url, variables) {
            Ok(remote) => remote.connect().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.kind(), *kind, "{url}: {error}");
        assert!(error.to_string().contains(says) && error.to_string().contains(url), "{url}: {error}");
        assert_eq!(aws.log().len(), 0, "{url}");
    }
}

#[tokio::test]
async fn a_profile_says_how_a_bucket_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config");
    for (profile, endpoint) in [
        (
            "s3 =\n  addressing_style = virtual\n  max_concurrent_requests = 20",
            "https://photos.s3.us-west-2.amazonaws.com",
        ),
        ("s3 =\n  use_accelerate_endpoint = true", "https://photos.s3-accelerate.amazonaws.com"),
        ("use_fips_endpoint = true", "https://s3-fips.us-west-2.amazonaws.com"),
        ("use_dualstack_endpoint = true", "https://s3.dualstack.us-west-2.amazonaws.com"),
        ("services = near\nendpoint_url = https://any.example", "https://s3.example"),
        ("endpoint_url = https://any.example", "https://any.example"),
        ("services = near\nignore_configured_endpoint_urls = true", "https://s3.us-west-2.amazonaws.com"),
    ] {
        let text = format!(
            "[default]\nregion = us-west-2\n{profile}\n[services near]\ns3 =\n  endpoint_url = https://s3.example\n\
             dynamodb =\n  endpoint_url = https://other.example\n"
        );
        std::fs::write(&file, text).unwrap();
        let remote = Aws::default().remote("s3://photos", &[("AWS_CONFIG_FILE", file.to_str().unwrap())]).unwrap();
        remote.connect().await.unwrap_or_else(|e| panic!("{profile}: {e}"));
        assert_eq!(remote.connection().unwrap().endpoint, endpoint, "{profile}");
    }
    std::fs::write(&file, "[default]\nservices = far\n").unwrap();
    let remote = Aws::default().remote("s3://photos", &[("AWS_CONFIG_FILE", file.to_str().unwrap())]).unwrap();
    assert!(remote.connect().await.unwrap_err().to_string().contains("no section `services far`"));
}

#[tokio::test]
async fn a_session_that_has_ended_is_made_anew_in_the_middle_of_reading() {
    let aws = Aws::default();
    aws.0.lock().unwrap().lasts = Some(3);
    let remote = aws.remote("s3://train--usw2-az1--x-s3/p", &[USW2]).unwrap();
    for _ in 0..10 {
        assert_eq!(remote.get(&"p/a/1".into()).await.unwrap().bytes().await.unwrap(), "1");
    }
    assert_eq!(aws.0.lock().unwrap().sessions, 4);
}

#[tokio::test]
async fn who_may_not_have_a_session_is_told_what_to_allow() {
    let aws = Aws::default();
    let keys = [("AWS_ACCESS_KEY_ID", "AKIAOTHER"), ("AWS_SECRET_ACCESS_KEY", "secret"), USW2];
    let url = "s3://train--usw2-az1--x-s3";
    let remote = Remote::new(&url[5..], url, keys.into_iter().collect()).answered_by(HttpClient::new(aws.clone()));
    let error = remote.list(None).try_collect::<Vec<_>>().await.unwrap_err();
    let error = crate::errors::store_error(error, "cannot be listed");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:#}");
    assert!(error.to_string().contains("s3express:CreateSession"), "{error:#}");
}

/// Kept listings are compared by `start-after`, which a directory bucket does not support.
#[tokio::test]
async fn the_listing_of_a_directory_bucket_is_in_order_and_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    for (bucket, kept) in [("photos", 1), ("train--usw2-az1--x-s3", 0)] {
        let aws = Aws::default();
        aws.0.lock().unwrap().objects = 20_000;
        let url = format!("s3://{bucket}/p");
        let remote = aws.remote(&url, &[USW2, ("INFEED_MANIFEST_DIR", at)]).unwrap();
        let Source(mut inner) = Source::from_store(Arc::new(remote.clone()), "p".into(), &url)
            .sharing_requests(&format!("s3 test {bucket}"));
        Arc::make_mut(&mut inner).remote = Some(remote);
        let source = Source(inner);
        let first = source.objects(None, None).await.unwrap();
        assert_eq!(first.len(), 20_000 + KEYS.len());
        assert!(first.is_sorted_by(|a, b| a.name < b.name));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), kept, "{bucket}");
        assert_eq!(source.objects(None, None).await.unwrap(), first);
        for kept in std::fs::read_dir(dir.path()).unwrap() {
            std::fs::remove_file(kept.unwrap().path()).unwrap();
        }
    }
}

#[test]
fn a_clock_before_1970_is_an_error() {
    use std::time::{Duration, SystemTime};
    let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    assert!(super::s3::check_clock(before).unwrap_err().to_string().contains("before 1970"));
    super::s3::check_clock(SystemTime::now()).unwrap();
}
