use std::{
    error::Error as _,
    fs, io,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::TryStreamExt;
use infeed_core::error::{ErrorKind, Result};
use object_store::{
    ObjectStore, ObjectStoreExt,
    client::{HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService},
};
use reqwest::{StatusCode, header::CONTENT_LENGTH};
use tokio::time::Instant;

use super::{connector, credentials, explain, profile, profile::Profile, *};
use crate::{Refusal, Source, answer::Answer};

const FILE: &str = "\
# keys of the lab
[default]
aws_access_key_id = AKIADEFAULT
aws_secret_access_key=se/cr=et # not part of it

[ lab ]
AWS_ACCESS_KEY_ID = AKIALAB
aws_secret_access_key = labsecret
aws_session_token = token==
s3 =
    max_concurrent_requests = 20
region = eu-west-1
[half]
aws_access_key_id = AKIAHALF
";
const CONFIG: &str = "\
[default]
region = us-west-2
[profile lab]
region = ap-south-1
[profile sso one]
[sso-session lab]
sso_start_url = https://x
[profile tool]
credential_process = /bin/tool
[profile console]
login_session = arn:aws:iam::1:user/me
[lab]
region = not-a-profile
";

#[test]
fn profiles_are_read_as_the_sdks_read_them() {
    let sections = profile::parse(FILE.as_bytes(), false).profiles;
    assert_eq!(sections["default"]["aws_secret_access_key"], "se/cr=et");
    assert_eq!(sections["lab"]["aws_access_key_id"], "AKIALAB");
    assert_eq!(sections["lab"]["region"], "eu-west-1");
    assert!(!sections["lab"].contains_key("max_concurrent_requests"));
    let sections = profile::parse(CONFIG.as_bytes(), true).profiles;
    assert_eq!(sections.keys().collect::<Vec<_>>(), ["console", "default", "lab", "sso one", "tool"]);
    assert_eq!(sections["lab"]["region"], "ap-south-1");
    // None of these is an error.
    for odd in ["", "[", "]", "[]", "=", "a=b", "[x]\n=\n==", "\u{feff}[x]\na=1", "[x]\r\na = 1\r\n"] {
        for config in [false, true] {
            profile::parse(odd.as_bytes(), config);
        }
    }
    assert_eq!(profile::parse(b"\xef\xbb\xbf[x]\r\na = 1\r\n", false).profiles["x"]["a"], "1");
    // Indented as a whole, with a key that contains further keys.
    let indented = "[x]\n  a = 1\n  b = 2\n  s3 =\n    c = 3\n  d =\n  e = 5\n    f = of e\n";
    let section = &profile::parse(indented.as_bytes(), false).profiles["x"];
    let keys: Vec<_> = section.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(keys, ["a=1", "b=2", "d=", "e=5", "s3=", "s3.c=3"]);
}

fn files() -> (tempfile::TempDir, Vec<(&'static str, String)>) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("credentials"), FILE).unwrap();
    fs::write(dir.path().join("config"), CONFIG).unwrap();
    let path = |name| dir.path().join(name).display().to_string();
    let vars = vec![("AWS_SHARED_CREDENTIALS_FILE", path("credentials")), ("AWS_CONFIG_FILE", path("config"))];
    (dir, vars)
}

#[test]
fn the_credentials_file_wins_and_the_profile_is_named() {
    let (_dir, mut vars) = files();
    let find = |vars: &[(&str, String)]| Profile::find(&vars.iter().cloned().collect());
    let profile = find(&vars).unwrap().unwrap();
    assert_eq!((profile.name.as_str(), profile.get("region")), ("default", Some("us-west-2")));
    vars.push(("AWS_PROFILE", "lab".into()));
    assert_eq!(find(&vars).unwrap().unwrap().get("region"), Some("eu-west-1"));
    vars.push(("AWS_PROFILE", "leb".into()));
    let error = find(&vars).err().unwrap();
    assert!(
        error.to_string().contains("`leb`") && error.to_string().contains("console, default, half, lab, sso one"),
        "{error}"
    );
}

/// The result of connecting. It must not lead to a request: the clock jumps if only a request is awaited, but not for
/// files.
fn connect(vars: &[(&str, String)]) -> Result<Connection> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let source = Source::parse_with("s3://bucket/x", vars.iter().cloned()).unwrap();
    let connected = async { tokio::time::timeout(std::time::Duration::from_millis(1), source.connect()).await };
    runtime.block_on(connected).expect("no request")?;
    Ok(source.connection().expect("it is connected"))
}

#[test]
fn providers_are_asked_in_the_order_of_the_sdks() {
    let (_dir, mut vars) = files();
    vars.push(("AWS_PROFILE", "lab".into()));
    let of_profile = connect(&vars).unwrap();
    assert!(of_profile.provider.starts_with("profile `lab` of "), "{}", of_profile.provider);
    assert_eq!((of_profile.region.as_str(), of_profile.path_style), ("eu-west-1", true));
    assert_eq!(of_profile.endpoint, "https://s3.eu-west-1.amazonaws.com");
    vars.push(("AWS_ACCESS_KEY_ID", "AKIAENV".into()));
    let half = connect(&vars).unwrap_err();
    assert_eq!(half.kind(), ErrorKind::Config);
    vars.push(("AWS_SECRET_ACCESS_KEY", "secret".into()));
    vars.push(("AWS_DEFAULT_REGION", "us-east-2".into()));
    vars.push(("AWS_REQUEST_PAYER", "requester".into()));
    vars.push(("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true".into()));
    vars.push(("AWS_ENDPOINT_URL", "https://minio.example:9000/".into()));
    let of_environment = connect(&vars).unwrap();
    assert_eq!(of_environment.provider, "environment (AWS_ACCESS_KEY_ID)");
    assert_eq!(of_environment.region, "us-east-2");
    assert_eq!(of_environment.endpoint, "https://bucket.minio.example:9000");
    assert!(of_environment.requester_pays && !of_environment.path_style);
    vars.push(("AWS_SKIP_SIGNATURE", "1".into()));
    assert_eq!(connect(&vars).unwrap().provider, "none (AWS_SKIP_SIGNATURE)");
}

#[test]
fn settings_that_can_t_be_say_which() {
    let region = ("AWS_REGION", "eu-west-1");
    let keys = [("AWS_ACCESS_KEY_ID", "AKIAX"), ("AWS_SECRET_ACCESS_KEY", "hush"), region];
    let (dir, files) = files();
    let file = dir.path().join("credentials").display().to_string();
    for (more, kind, says) in [
        (("AWS_ENDPOINT_URL", "http://localhost:1"), ErrorKind::Config, "AWS_ALLOW_HTTP=true"),
        (("AWS_ENDPOINT_URL", "localhost:9000"), ErrorKind::Config, "not a url"),
        (("AWS_ENDPOINT_URL", "https://me:hush@minio"), ErrorKind::Config, "holds credentials"),
        (("AWS_CA_BUNDLE", "/no/such.pem"), ErrorKind::Config, "AWS_CA_BUNDLE names a file that cannot be read"),
        (("SSL_CERT_FILE", file.as_str()), ErrorKind::Config, "SSL_CERT_FILE names a file without certificates"),
        (("AWS_ALLOW_HTTP", "perhaps"), ErrorKind::Config, "AWS_ALLOW_HTTP is neither true nor false"),
    ] {
        let vars: Vec<_> = keys.iter().chain([&more]).map(|(name, value)| (*name, (*value).to_owned())).collect();
        let error = connect(&vars).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says) && !format!("{error:#}").contains("hush"), "{error:#}");
    }
    for (profile, kind, says) in [
        ("console", ErrorKind::Denied, "aws login --profile console"),
        ("half", ErrorKind::Config, "no aws_secret_access_key"),
    ] {
        let mut vars = files.clone();
        vars.push(("AWS_PROFILE", profile.into()));
        let error = connect(&vars).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn without_credentials_the_error_says_what_was_tried() {
    let error = connect(&[("AWS_EC2_METADATA_DISABLED", "true".into())]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    let text = error.to_string();
    for tried in ["AWS_ACCESS_KEY_ID", "web identity", "~/.aws/credentials", "container", "instance"] {
        assert!(text.contains(tried), "{text}");
    }
    let error = connect(&[("AWS_EC2_METADATA_DISABLED", "true".into()), ("SM_CURRENT_HOST", "algo-1".into())]);
    assert!(error.unwrap_err().to_string().contains("network isolation"));
}

#[test]
fn outside_of_tokio_a_bucket_says_so() {
    let source = Source::parse_with("s3://bucket/x", [("AWS_SKIP_SIGNATURE", "true")]).unwrap();
    let error = futures::executor::block_on(source.connect()).unwrap_err();
    assert!(error.to_string().contains("tokio"), "{error}");
}

#[test]
fn nothing_that_is_printed_holds_a_secret() {
    let vars = [("AWS_ACCESS_KEY_ID", "AKIAX"), ("AWS_SECRET_ACCESS_KEY", "hush"), ("AWS_REGION", "x")];
    let source = Source::parse_with("s3://bucket/x", vars).unwrap();
    let printed = format!("{source:?} {source:#?} {:?}", vars.into_iter().collect::<Vars>());
    assert!(!printed.contains("hush") && !printed.contains("AKIAX"), "{printed}");
}

#[test]
fn the_cause_of_a_refusal_keeps_the_code_and_not_the_request() {
    let body = "<Error><Code>SignatureDoesNotMatch</Code><Message>no match</Message>\
                <CanonicalRequest>x-amz-security-token:hush</CanonicalRequest><RequestId>R1</RequestId></Error>";
    let refusal = connector::refusal(403, |_| None, &body.into());
    let connection = Connection {
        provider: "environment".into(),
        region: "eu".into(),
        endpoint: "http://x".into(),
        path_style: true,
        requester_pays: false,
        commit: None,
    };
    let explain = |refusal| explain::explain(&Answer::Refused(refusal), explain::Doing::Reading, "b", &connection);
    let said = explain(refusal).unwrap();
    assert_eq!(said.kind(), ErrorKind::Denied);
    assert_eq!(
        said.source().unwrap().to_string(),
        "the store answered 403 SignatureDoesNotMatch: no match (request R1)"
    );
    assert!(!format!("{said:#?}").contains("hush"));
    let archived = "<Error><Code>InvalidObjectState</Code><StorageClass>GLACIER</StorageClass></Error>";
    let said = explain(connector::refusal(403, |_| None, &archived.into())).unwrap().to_string();
    assert!(said.contains("archived") && said.contains("restore it first") && !said.contains("GetObject"), "{said}");
    let overload = connector::refusal(503, |_| None, &"<Error><Code>SlowDown</Code></Error>".into());
    assert!(explain(overload).is_none(), "overload is for whoever retries");
}

/// A provider whose service gives this answer.
#[derive(Debug)]
struct Refusing(Refusal);

#[async_trait::async_trait]
impl object_store::CredentialProvider for Refusing {
    type Credential = object_store::aws::AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<Self::Credential>> {
        Err(object_store::Error::Generic { store: "S3", source: self.0.clone().into() })
    }
}

#[test]
fn what_a_service_of_credentials_says_is_not_taken_for_the_store() {
    for (refusal, kind) in [
        (Refusal::new(403).with_code("ExpiredToken"), ErrorKind::Denied),
        (Refusal::new(400).with_code("IncorrectEndpoint"), ErrorKind::Denied),
        (Refusal::new(500), ErrorKind::Io),
        (Refusal::new(429), ErrorKind::Io),
    ] {
        let asked = credentials::asked("instance role".into(), Arc::new(Refusing(refusal.clone())));
        let error = futures::executor::block_on(asked.get_credential()).unwrap_err();
        assert_eq!(Answer::of(&error), None, "nobody heals or explains it");
        let error = crate::errors::store_error(error, "cannot be read");
        assert_eq!(error.kind(), kind, "{error:#}");
        let text = format!("{error:#}");
        assert!(text.contains("instance role") && text.ends_with(&refusal.to_string()), "{text}");
    }
}

/// Answers with this status, or not at all, until this time.
type Out = (Option<StatusCode>, Instant);

/// A bucket with one object, which may be down.
#[derive(Clone, Debug, Default)]
struct Outage(Arc<Mutex<Option<Out>>>);

#[async_trait]
impl HttpService for Outage {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let out = self.0.lock().unwrap().filter(|(_, until)| Instant::now() < *until);
        match out {
            Some((None, _)) => {
                let error = io::Error::from(io::ErrorKind::ConnectionReset);
                Err(HttpError::new(HttpErrorKind::Request, error))
            }
            Some((Some(status), _)) => {
                let mut response = HttpResponse::new(bytes::Bytes::new().into());
                *response.status_mut() = status;
                Ok(response)
            }
            None if request.method().as_str() == "HEAD" => {
                let mut response = HttpResponse::new(bytes::Bytes::new().into());
                response.headers_mut().insert(CONTENT_LENGTH, 1.into());
                Ok(response)
            }
            None => {
                let object = "<Key>x</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size>";
                let page = format!("<ListBucketResult><Contents>{object}</Contents></ListBucketResult>");
                Ok(HttpResponse::new(bytes::Bytes::from(page).into()))
            }
        }
    }
}

/// With a clock that jumps to the next timer. Measures how long it takes, which no test with a real server does.
#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_for_as_long_as_the_patience_lasts_and_an_unknown_endpoint_for_ten_seconds() {
    const PATIENCE: Duration = Duration::from_secs(60);
    // One and a half times the longest pause.
    const PAUSE: Duration = Duration::from_secs(3);
    let vars = || {
        [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "r")].into_iter().collect()
    };
    let list = |remote: &Remote| remote.list(None).try_collect::<Vec<_>>();
    let took = |began: Instant, least: u64| {
        let (took, least) = (began.elapsed(), Duration::from_secs(least));
        assert!((least..=least + PAUSE).contains(&took), "{took:?}, not {least:?}");
    };
    for how in [Some(StatusCode::SERVICE_UNAVAILABLE), Some(StatusCode::INTERNAL_SERVER_ERROR), None] {
        let outage = Outage::default();
        let out = |seconds| {
            *outage.0.lock().unwrap() = Some((how, Instant::now() + Duration::from_secs(seconds)));
            Instant::now()
        };
        let remote = || {
            let remote = Remote::new("b", "s3://b", vars()).answered_by(HttpClient::new(outage.clone()));
            remote.set_patience(PATIENCE);
            remote
        };
        let known = remote();
        let began = out(2);
        assert_eq!(list(&known).await.unwrap().len(), 1);
        took(began, 2);
        for seconds in [2, 57] {
            let began = out(seconds);
            assert_eq!(known.head(&"x".into()).await.unwrap().size, 1);
            took(began, seconds);
        }
        let began = out(600);
        list(&known).await.unwrap_err();
        took(began, 60);
        let began = out(600);
        list(&remote()).await.unwrap_err();
        took(began, 10);
    }
}
