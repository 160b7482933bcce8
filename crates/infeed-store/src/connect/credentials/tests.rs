use std::{
    collections::BTreeMap,
    fs,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use futures::TryStreamExt;
use infeed_core::error::ErrorKind;
use object_store::{
    ObjectStore,
    client::{HttpClient, HttpError, HttpRequest, HttpResponse, HttpService},
};
use reqwest::StatusCode;
use rustls::{
    SignatureScheme,
    pki_types::{SignatureVerificationAlgorithm, alg_id},
};
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use url::Url;

use super::{
    super::{Remote, Vars},
    renewed::time,
};
use crate::checksum::hex;

/// AWS as its documents describe it: a bucket, the token service, single sign-on, containers, an instance. Secrets and
/// tokens are derived from the name of a key. The name of an issued key shows which key requested it.
#[derive(Clone, Debug, Default)]
struct Aws(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Requested hosts, in order.
    hosts: Vec<String>,
    /// The keys that signed requests to the bucket.
    signers: Vec<String>,
    /// How long issued keys last; an hour by default.
    lasts: Option<Duration>,
    /// Services that answer 500.
    down: bool,
    /// The number of requests that the bucket treats as having an expired token.
    expired: u32,
}

const BUCKET: &str = "s3.eu-west-1.amazonaws.com";
/// A key used only here.
const DPOP_KEY: &str = "MHcCAQEEIGwgfqT3XI+dmZSDS8+qFvSaEB7vwteit7K3jokTCtZ2oAoGCCqGSM49AwEHoUQDQgAECluep7IAI5XilyY+\
                        E2daBw/pR+i8tK9lUCLjpuIfy0VxeO1dxVUNfe7FSaijHuqvobPj3DJHwGYypklmiKx4+Q==";
const DPOP_POINT: &str = "BApbnqeyACOV4pcmPhNnWgcP6UfovLSvZVAi46biH8tFcXjtXcVVDX3uxUmoox7qr6Gz49wyR8BmMqZJZoisePk";
const STS: &str = "sts.eu-west-1.amazonaws.com";

fn secret(key: &str) -> String {
    format!("hush/{key}+")
}

fn token(key: &str) -> String {
    format!("hush-token-of-{key}==")
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let pad = |byte: u8| (0..64).map(|i| key.get(i).unwrap_or(&0) ^ byte).collect::<Vec<u8>>();
    let inner = Sha256::digest([pad(0x36).as_slice(), message].concat());
    Sha256::digest([pad(0x5c).as_slice(), &inner].concat()).to_vec()
}

fn encode(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes().map(|b| if plain(&b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// The key that signed a request:
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>
fn signer(request: &HttpRequest, url: &Url, service: &str) -> Option<String> {
    let header = |name: &str| match name {
        "host" => Some(url[url::Position::BeforeHost..url::Position::AfterPort].to_owned()),
        _ => Some(request.headers().get(name)?.to_str().unwrap().to_owned()),
    };
    let fields = header("authorization")?;
    let fields = fields.strip_prefix("AWS4-HMAC-SHA256 ")?;
    let field = |name: &str| fields.split(", ").find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let (key, scope) = field("Credential")?.split_once('/')?;
    let (date, rest) = scope.split_once('/')?;
    assert_eq!(rest, format!("eu-west-1/{service}/aws4_request"));
    let names: Vec<_> = field("SignedHeaders")?.split(';').collect();
    let given = header("x-amz-security-token");
    // A long-term key has no token; any other key has one, which must be signed.
    assert_eq!(given, (!key.starts_with("AKIA")).then(|| token(key)), "{key}");
    assert!(names.contains(&"host") && (given.is_none() || names.contains(&"x-amz-security-token")));
    let mut query: Vec<_> =
        url.query_pairs().map(|(name, value)| format!("{}={}", encode(&name), encode(&value))).collect();
    query.sort_unstable();
    let headers: String = names.iter().map(|name| format!("{name}:{}\n", header(name).unwrap())).collect();
    let body = header("x-amz-content-sha256")?;
    assert_eq!(body, hex(&Sha256::digest(request.body().as_bytes().unwrap())));
    let canonical =
        [request.method().as_str(), url.path(), &query.join("&"), &headers, &names.join(";"), &body].join("\n");
    let text = ["AWS4-HMAC-SHA256", &header("x-amz-date")?, scope, &hex(&Sha256::digest(canonical))].join("\n");
    let sign = |secret: Vec<u8>, part: &str| hmac(&secret, part.as_bytes());
    let signing = [date, "eu-west-1", service, "aws4_request", &text];
    let signature = signing.into_iter().fold(format!("AWS4{}", secret(key)).into_bytes(), sign);
    (field("Signature")? == hex(&signature)).then(|| key.to_owned())
}

fn answer(status: u16, body: impl Into<String>) -> HttpResponse {
    let mut response = HttpResponse::new(bytes::Bytes::from(body.into()).into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

impl Aws {
    fn ends(&self) -> SystemTime {
        SystemTime::now() + self.0.lock().unwrap().lasts.unwrap_or(Duration::from_secs(3600))
    }

    fn expiration(&self) -> String {
        humantime::format_rfc3339_seconds(self.ends()).to_string()
    }

    /// In the form that containers and instances write.
    fn keys(&self, key: &str) -> HttpResponse {
        let keys = json!({
            "Code": "Success", "AccessKeyId": key, "SecretAccessKey": secret(key), "Token": token(key),
            "Expiration": self.expiration(),
        });
        answer(200, keys.to_string())
    }

    fn bucket(&self, request: &HttpRequest, url: &Url) -> HttpResponse {
        let Some(signer) = signer(request, url, "s3") else {
            return answer(403, "<Error><Code>SignatureDoesNotMatch</Code></Error>");
        };
        let mut state = self.0.lock().unwrap();
        state.signers.push(signer);
        if state.expired > 0 {
            state.expired -= 1;
            return answer(400, "<Error><Code>ExpiredToken</Code></Error>");
        }
        let object = "<Key>x</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size>";
        answer(200, format!("<ListBucketResult><Contents>{object}</Contents></ListBucketResult>"))
    }

    /// <https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html>
    fn sts(&self, request: &HttpRequest, url: &Url) -> HttpResponse {
        let form: BTreeMap<String, String> =
            url::form_urlencoded::parse(request.body().as_bytes().unwrap()).into_owned().collect();
        assert_eq!(request.headers()["content-type"], "application/x-www-form-urlencoded");
        let get = |name: &str| form.get(name).map(String::as_str);
        assert_eq!((get("Version"), url.query()), (Some("2011-06-15"), None));
        let by = match get("Action") {
            Some("AssumeRole") => signer(request, url, "sts"),
            Some("AssumeRoleWithWebIdentity") if request.headers().get("authorization").is_none() => {
                get("WebIdentityToken").filter(|token| *token == "hush-web").map(|_| "web".to_owned())
            }
            _ => None,
        };
        let role = get("RoleArn").unwrap().strip_prefix("arn:aws:iam::123456789012:role/");
        let named = get("RoleSessionName").unwrap();
        // What the role's trust policy requires.
        let trusted = match role {
            Some("outer") => (get("ExternalId"), named, get("DurationSeconds")) == (Some("E&1"), "job=7", Some("900")),
            Some("reader" | "inner") => named.starts_with("infeed-") && get("ExternalId").is_none(),
            _ => false,
        };
        let (Some(by), Some(role), true) = (by, role, trusted) else {
            let signed = "The Canonical String should have been\nx-amz-security-token:hush";
            let message = format!("<Message>not authorized\n\n{signed}</Message>");
            let error = format!("<Type>Sender</Type><Code>AccessDenied</Code>{message}");
            return answer(403, format!("<ErrorResponse><Error>{error}</Error></ErrorResponse>"));
        };
        let key = format!("ASIA.{role}.by.{by}");
        let (secret, token, ends) = (secret(&key), token(&key), self.expiration());
        answer(
            200,
            format!(
                "<AssumeRoleResponse><AssumeRoleResult><AssumedRoleUser><Arn>a</Arn></AssumedRoleUser><Credentials>\
                 <AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>\
                 <SessionToken>{token}</SessionToken><Expiration>{ends}</Expiration>\
                 </Credentials></AssumeRoleResult></AssumeRoleResponse>"
            ),
        )
    }

    /// <https://docs.aws.amazon.com/singlesignon/latest/PortalAPIReference/API_GetRoleCredentials.html>
    fn portal(&self, request: &HttpRequest, url: &Url) -> HttpResponse {
        let bearer = request.headers().get("x-amz-sso_bearer_token").and_then(|value| value.to_str().ok());
        if !matches!(bearer, Some("hush-good" | "hush-fresh")) {
            return answer(401, json!({"message": "Session token not found or invalid"}).to_string());
        }
        let query: BTreeMap<_, _> = url.query_pairs().into_owned().collect();
        assert_eq!(url.path(), "/federation/credentials");
        let key = format!("ASIA.{}.of.{}", query["role_name"], query["account_id"]);
        let ends = self.ends().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        let keys = json!({
            "accessKeyId": key, "secretAccessKey": secret(&key), "sessionToken": token(&key),
            "expiration": u64::try_from(ends).unwrap(),
        });
        answer(200, json!({"roleCredentials": keys}).to_string())
    }

    /// <https://docs.aws.amazon.com/singlesignon/latest/OIDCAPIReference/API_CreateToken.html>
    fn oidc(request: &HttpRequest) -> HttpResponse {
        let asked: Value = serde_json::from_slice(request.body().as_bytes().unwrap()).unwrap();
        let right = json!({
            "clientId": "id", "clientSecret": "hush-client", "grantType": "refresh_token", "refreshToken": "hush-refresh",
        });
        match asked == right {
            true => answer(
                200,
                json!({"accessToken": "hush-fresh", "expiresIn": 3600, "refreshToken": "hush-next"}).to_string(),
            ),
            false => answer(400, json!({"error": "invalid_grant"}).to_string()),
        }
    }

    /// As in botocore's model of the service `signin`, and RFC 9449.
    fn login(&self, request: &HttpRequest, url: &Url) -> HttpResponse {
        let asked: Value = serde_json::from_slice(request.body().as_bytes().unwrap()).unwrap();
        let right = json!({"clientId": "cli", "grantType": "refresh_token", "refreshToken": "hush-refresh"});
        if asked != right {
            return answer(400, json!({"error": "TOKEN_EXPIRED", "message": "the session is over"}).to_string());
        }
        let parts: Vec<_> = request.headers()["dpop"].to_str().unwrap().split('.').collect();
        let [head, claims, signature] = parts[..] else { panic!("{parts:?}") };
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
        let parse = |text| serde_json::from_slice::<Value>(&decode(text)).unwrap();
        let (head, told, signature) = (parse(head), parse(claims), decode(signature));
        assert_eq!((&head["typ"], &head["alg"]), (&json!("dpop+jwt"), &json!("ES256")));
        assert_eq!((&told["htm"], &told["htu"]), (&json!("POST"), &json!(url.as_str())));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert!(now - told["iat"].as_u64().unwrap() < 600 && told["jti"].as_str().unwrap().len() == 32);
        let of_jwk = |name: &str| decode(head["jwk"][name].as_str().unwrap());
        let point = [vec![4], of_jwk("x"), of_jwk("y")].concat();
        assert_eq!(point, decode(DPOP_POINT));
        // In the form that the verifier needs.
        let number = |number: &[u8]| {
            // As short as it goes: about one signature in 250 has a number that begins with a zero.
            let zeros = number.iter().take_while(|byte| **byte == 0).count();
            let number = &number[zeros..];
            let number = [&[0][..usize::from(number[0] > 127)], number].concat();
            [vec![2, u8::try_from(number.len()).unwrap()], number].concat()
        };
        let both = [number(&signature[..32]), number(&signature[32..])].concat();
        let asn1 = [vec![0x30, u8::try_from(both.len()).unwrap()], both].concat();
        let known = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let of_p256 =
            known.mapping.iter().find(|(scheme, _)| *scheme == SignatureScheme::ECDSA_NISTP256_SHA256).unwrap();
        let checks = |how: &&dyn SignatureVerificationAlgorithm| {
            how.public_key_alg_id() == alg_id::ECDSA_P256
                && how.verify_signature(&point, format!("{}.{claims}", parts[0]).as_bytes(), &asn1).is_ok()
        };
        assert!(of_p256.1.iter().any(checks));
        let key = "ASIA.login";
        let keys = json!({"accessKeyId": key, "secretAccessKey": secret(key), "sessionToken": token(key)});
        let renewed = json!({
            "accessToken": keys, "tokenType": "aws_sigv4", "expiresIn": 900, "refreshToken": "hush-next",
        });
        answer(200, renewed.to_string())
    }

    fn remote(&self, vars: Vars) -> Remote {
        Remote::new("b", "s3://b", vars).answered_by(HttpClient::new(self.clone()))
    }

    fn asked(&self, host: &str) -> usize {
        self.0.lock().unwrap().hosts.iter().filter(|asked| *asked == host).count()
    }
}

#[async_trait]
impl HttpService for Aws {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let url = Url::parse(&request.uri().to_string()).unwrap();
        let host = url.host_str().unwrap().to_owned();
        let down = {
            let mut state = self.0.lock().unwrap();
            state.hosts.push(host.clone());
            state.down
        };
        let authorization = request.headers().get("authorization").and_then(|value| value.to_str().ok());
        Ok(match (host.as_str(), url.path()) {
            (BUCKET, _) => self.bucket(&request, &url),
            _ if down => answer(500, ""),
            (STS | "sts.example", "/") => self.sts(&request, &url),
            ("portal.sso.us-east-2.amazonaws.com", _) => self.portal(&request, &url),
            ("oidc.us-east-2.amazonaws.com", "/token") => Self::oidc(&request),
            ("eu-west-1.signin.aws.amazon.com", "/v1/token") => self.login(&request, &url),
            ("169.254.170.2", "/v2/credentials/7") if authorization.is_none() => self.keys("ASIA.task"),
            ("169.254.170.23", "/v1/credentials") if authorization == Some("hush-pod") => self.keys("ASIA.pod"),
            ("127.0.0.1", "/inline") if authorization == Some("hush-inline") => self.keys("ASIA.inline"),
            ("localhost", "/open") if authorization.is_none() => self.keys("ASIA.open"),
            ("169.254.169.254", "/latest/api/token") => answer(200, "session"),
            ("169.254.169.254", "/latest/meta-data/iam/security-credentials/") => answer(200, "box"),
            ("169.254.169.254", "/latest/meta-data/iam/security-credentials/box") => self.keys("ASIA.box"),
            _ => answer(403, ""),
        })
    }
}

const CONFIG: &str = r#"
[profile role]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = base
[profile itself]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = itself
[profile outer]
role_arn = arn:aws:iam::123456789012:role/outer
source_profile = inner
external_id = E&1
role_session_name = job=7
duration_seconds = 900
[profile inner]
role_arn = arn:aws:iam::123456789012:role/inner
source_profile = base
[profile of-environment]
role_arn = arn:aws:iam::123456789012:role/reader
credential_source = Environment
[profile of-instance]
role_arn = arn:aws:iam::123456789012:role/reader
credential_source = Ec2InstanceMetadata
[profile of-container]
role_arn = arn:aws:iam::123456789012:role/reader
credential_source = EcsContainer
[profile web]
role_arn = arn:aws:iam::123456789012:role/inner
web_identity_token_file = ~/web
[profile of-web]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = web
[profile of-sso]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = sso
[profile of-process]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = process
[profile elsewhere]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = base
services = ours
[services ours]
sts =
  endpoint_url = https://sts.example
[profile over-sockets]
role_arn = arn:aws:iam::123456789012:role/reader
credential_source = EcsContainer
external_id = E&1
duration_seconds = 900
[profile fips]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = base
use_fips_endpoint = true
[profile process]
credential_process = cat "{dir}/a process"
[profile sso]
sso_session = lab
sso_account_id = 123456789012
sso_role_name = Reader
[profile sso-stale]
sso_session = stale
sso_account_id = 123456789012
sso_role_name = Reader
[profile sso-legacy]
sso_start_url = https://lab.awsapps.com/start
sso_region = us-east-2
sso_account_id = 123456789012
sso_role_name = Reader
[sso-session lab]
sso_region = us-east-2
sso_start_url = https://lab.awsapps.com/start
[sso-session stale]
sso_region = us-east-2
sso_start_url = https://lab.awsapps.com/start

[profile mfa]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = base
mfa_serial = arn:aws:iam::123456789012:mfa/me
[profile round]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = about
[profile about]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = round
[profile alone]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = alone
[profile by-nobody]
role_arn = arn:aws:iam::123456789012:role/reader
[profile by-both]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = base
credential_source = Environment
[profile by-odd]
role_arn = arn:aws:iam::123456789012:role/reader
credential_source = Magic
[profile by-none]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = nowhere
[profile by-empty]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = empty
[profile empty]
region = eu-west-1
[profile denied]
role_arn = arn:aws:iam::123456789012:role/other
source_profile = base
[profile forever]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = base
duration_seconds = 1h
[profile no-role]
source_profile = base
[profile sso-out]
sso_session = out
sso_account_id = 123456789012
sso_role_name = Reader
[sso-session out]
sso_region = us-east-2
sso_start_url = https://lab.awsapps.com/start
[profile sso-never]
sso_session = never
sso_account_id = 123456789012
sso_role_name = Reader
[sso-session never]
sso_region = us-east-2
sso_start_url = https://lab.awsapps.com/start
[profile sso-nowhere]
sso_session = nowhere
sso_account_id = 123456789012
sso_role_name = Reader
[profile sso-half]
sso_session = lab
sso_account_id = 123456789012
[profile login]
login_session = arn:aws:iam::123456789012:user/me
[profile login-stale]
login_session = arn:aws:iam::123456789012:user/stale
[profile login-out]
login_session = arn:aws:iam::123456789012:user/out
[profile login-never]
login_session = arn:aws:iam::123456789012:user/never
[profile process-missing]
credential_process = /no/such/program --now
[profile process-fails]
credential_process = cat /no/such/file
[profile process-odd]
credential_process = echo hush
[profile process-two]
credential_process = echo '{"Version": 2, "AccessKeyId": "hush", "SecretAccessKey": "hush"}'
[profile process-half]
credential_process = echo '{"Version": 1, "AccessKeyId": "hush"}'
[profile process-open]
credential_process = echo "hush
"#;

/// A user's folder with its files, and the variables that point to them.
fn home() -> (TempDir, impl Fn(&[(&str, &str)]) -> Vars) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at(".aws/sso/cache")).unwrap();
    fs::write(at(".aws/config"), CONFIG.replace("{dir}", &dir.path().display().to_string())).unwrap();
    let keys = |name: &str, key: &str| {
        format!("[{name}]\naws_access_key_id = {key}\naws_secret_access_key = {}\n", secret(key))
    };
    let keys = [keys("base", "AKIABASE"), keys("itself", "AKIAITSELF"), keys("default", "AKIADEFAULT")].concat();
    fs::write(at(".aws/credentials"), keys).unwrap();
    fs::write(at("web"), "hush-web\n").unwrap();
    fs::write(at("pod"), "hush-pod").unwrap();
    let key = "ASIA.process";
    let printed = json!({
        "Version": 1, "AccessKeyId": key, "SecretAccessKey": secret(key), "SessionToken": token(key),
        "Expiration": "2100-01-01T00:00:00.5+01:00",
    });
    fs::write(at("a process"), printed.to_string()).unwrap();
    let cached = |name: &str, token: Value| {
        fs::write(at(".aws/sso/cache").join(format!("{}.json", hex(&Sha1::digest(name)))), token.to_string()).unwrap();
    };
    let good = json!({"accessToken": "hush-good", "expiresAt": "2100-01-01T00:00:00Z"});
    cached("lab", good.clone());
    let mut legacy = good;
    legacy["expiresAt"] = "2100-01-01T00:00:00UTC".into();
    cached("https://lab.awsapps.com/start", legacy);
    let mut stale = json!({
        "accessToken": "hush-stale", "expiresAt": "2026-01-01T00:00:00Z", "clientId": "id", "clientSecret": "hush-client",
        "refreshToken": "hush-refresh", "startUrl": "https://lab.awsapps.com/start",
    });
    cached("stale", stale.clone());
    stale["refreshToken"] = "hush-used".into();
    cached("out", stale);
    fs::create_dir_all(at(".aws/login/cache")).unwrap();
    for (user, ends, refresh) in
        [("me", "2100", "hush-refresh"), ("stale", "2026", "hush-refresh"), ("out", "2026", "hush-used")]
    {
        let key = if user == "me" { "ASIA.kept" } else { "ASIA.old" };
        let kept = json!({
            "accessToken": {
                "accessKeyId": key, "secretAccessKey": secret(key), "sessionToken": token(key),
                "accountId": "123456789012", "expiresAt": format!("{ends}-01-01T00:00:00Z"),
            },
            "tokenType": "aws_sigv4", "refreshToken": refresh, "clientId": "cli",
            "dpopKey": format!("-----BEGIN {0} KEY-----\n{DPOP_KEY}\n-----END {0} KEY-----\n", "EC PRIVATE"),
        });
        let name = hex(&Sha256::digest(format!("arn:aws:iam::123456789012:user/{user}")));
        fs::write(at(".aws/login/cache").join(format!("{name}.json")), kept.to_string()).unwrap();
    }
    let home = dir.path().display().to_string();
    let vars = move |more: &[(&str, &str)]| {
        let fixed = [("HOME", home.clone()), ("AWS_REGION", "eu-west-1".into())];
        let more = more.iter().map(|(name, value)| (*name, value.replace("{dir}", &home)));
        fixed.into_iter().chain(more).collect()
    };
    (dir, vars)
}

/// A kind of identity: its name, AWS's page about it, what is set, the key that signs in the end, and the shown
/// provider.
type Row = (&'static str, &'static str, Set<'static>, &'static str, &'static str);
/// Variables.
type Set<'a> = &'a [(&'a str, &'a str)];

const SDK: &str = "https://docs.aws.amazon.com/sdkref/latest/guide/";
const ENVIRONMENT: &str = "environment (AWS_ACCESS_KEY_ID)";
const IDENTITIES: &[Row] = &[
    (
        "keys of the environment",
        "feature-static-credentials.html",
        &[("AWS_ACCESS_KEY_ID", "AKIAENV"), ("AWS_SECRET_ACCESS_KEY", "hush/AKIAENV+"), ("AWS_PROFILE", "base")],
        "AKIAENV",
        ENVIRONMENT,
    ),
    (
        "temporary keys of the environment",
        "feature-static-credentials.html",
        &[
            ("AWS_ACCESS_KEY_ID", "ASIAENV"),
            ("AWS_SECRET_ACCESS_KEY", "hush/ASIAENV+"),
            ("AWS_SESSION_TOKEN", "hush-token-of-ASIAENV=="),
        ],
        "ASIAENV",
        ENVIRONMENT,
    ),
    ("keys of the default profile", "file-format.html", &[], "AKIADEFAULT", "profile `default`"),
    ("keys of a profile", "file-format.html", &[("AWS_PROFILE", "base")], "AKIABASE", "profile `base`"),
    (
        "a web identity (EKS: IRSA)",
        "feature-assume-role-credentials.html",
        &[("AWS_WEB_IDENTITY_TOKEN_FILE", "{dir}/web"), ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")],
        "ASIA.reader.by.web",
        "web identity (AWS_WEB_IDENTITY_TOKEN_FILE)",
    ),
    (
        "a web identity of a profile",
        "feature-assume-role-credentials.html",
        &[("AWS_PROFILE", "web")],
        "ASIA.inner.by.web",
        "web identity of the profile `web`",
    ),
    (
        "a role, by the keys of another profile",
        "feature-assume-role-credentials.html",
        &[("AWS_PROFILE", "role")],
        "ASIA.reader.by.AKIABASE",
        "role arn:aws:iam::123456789012:role/reader of the profile `role`",
    ),
    (
        "a role, by the keys of its own profile",
        "feature-assume-role-credentials.html",
        &[("AWS_PROFILE", "itself")],
        "ASIA.reader.by.AKIAITSELF",
        "by profile `itself`",
    ),
    (
        "a role by a role, with all that a role may say",
        "feature-assume-role-credentials.html",
        &[("AWS_PROFILE", "outer")],
        "ASIA.outer.by.ASIA.inner.by.AKIABASE",
        "role/outer of the profile `outer`",
    ),
    (
        "a role, by the keys of the environment",
        "feature-assume-role-credentials.html",
        &[
            ("AWS_PROFILE", "of-environment"),
            ("AWS_ACCESS_KEY_ID", "AKIAENV"),
            ("AWS_SECRET_ACCESS_KEY", "hush/AKIAENV+"),
        ],
        "ASIA.reader.by.AKIAENV",
        "by environment (AWS_ACCESS_KEY_ID)",
    ),
    (
        "a role, by that of the instance",
        "feature-assume-role-credentials.html",
        &[("AWS_PROFILE", "of-instance")],
        "ASIA.reader.by.ASIA.box",
        "by instance role",
    ),
    (
        "a role, by that of the container",
        "feature-assume-role-credentials.html",
        &[("AWS_PROFILE", "of-container"), ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/7")],
        "ASIA.reader.by.ASIA.task",
        "by container (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI)",
    ),
    (
        "a role, by a web identity",
        "feature-assume-role-credentials.html",
        &[("AWS_PROFILE", "of-web")],
        "ASIA.reader.by.ASIA.inner.by.web",
        "by web identity of the profile `web`",
    ),
    (
        "a role, by single sign-on",
        "feature-assume-role-credentials.html",
        &[("AWS_PROFILE", "of-sso")],
        "ASIA.reader.by.ASIA.Reader.of.123456789012",
        "by single sign-on of the profile `sso`",
    ),
    (
        "a role at another endpoint of the token service",
        "feature-ss-endpoints.html",
        &[("AWS_PROFILE", "elsewhere")],
        "ASIA.reader.by.AKIABASE",
        "role/reader of the profile `elsewhere`",
    ),
    (
        "single sign-on",
        "feature-sso-credentials.html",
        &[("AWS_PROFILE", "sso")],
        "ASIA.Reader.of.123456789012",
        "single sign-on of the profile `sso`",
    ),
    (
        "single sign-on whose token has expired and can be renewed",
        "access-sso.html",
        &[("AWS_PROFILE", "sso-stale")],
        "ASIA.Reader.of.123456789012",
        "single sign-on of the profile `sso-stale`",
    ),
    (
        "single sign-on without a session",
        "feature-sso-credentials.html",
        &[("AWS_PROFILE", "sso-legacy")],
        "ASIA.Reader.of.123456789012",
        "single sign-on of the profile `sso-legacy`",
    ),
    (
        "a console login",
        "feature-login-credentials.html",
        &[("AWS_PROFILE", "login")],
        "ASIA.kept",
        "login of the profile `login`",
    ),
    (
        "a console login that is renewed",
        "feature-login-credentials.html",
        &[("AWS_PROFILE", "login-stale")],
        "ASIA.login",
        "login of the profile `login-stale`",
    ),
    (
        "a task of ECS, a job of SageMaker",
        "feature-container-credentials.html",
        &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/7"), ("AWS_PROFILE", "empty")],
        "ASIA.task",
        "container (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI)",
    ),
    (
        "a pod of EKS (Pod Identity)",
        "feature-container-credentials.html",
        &[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "{dir}/pod"),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "the file goes before it"),
            ("AWS_PROFILE", "empty"),
        ],
        "ASIA.pod",
        "container (AWS_CONTAINER_CREDENTIALS_FULL_URI)",
    ),
    (
        "a container with its token in a variable (Greengrass, CloudShell)",
        "feature-container-credentials.html",
        &[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1338/inline"),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "hush-inline"),
            ("AWS_PROFILE", "empty"),
        ],
        "ASIA.inline",
        "container (AWS_CONTAINER_CREDENTIALS_FULL_URI)",
    ),
    (
        "a container that asks for no token",
        "feature-container-credentials.html",
        &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost:1338/open"), ("AWS_PROFILE", "empty")],
        "ASIA.open",
        "container (AWS_CONTAINER_CREDENTIALS_FULL_URI)",
    ),
    ("an instance", "feature-imds-credentials.html", &[("AWS_PROFILE", "empty")], "ASIA.box", "instance role"),
    #[cfg(unix)]
    (
        "a program",
        "feature-process-credentials.html",
        &[("AWS_PROFILE", "process")],
        "ASIA.process",
        "credential_process of the profile `process`",
    ),
    #[cfg(unix)]
    (
        "a role, by a program",
        "feature-assume-role-credentials.html",
        &[("AWS_PROFILE", "of-process")],
        "ASIA.reader.by.ASIA.process",
        "by credential_process of the profile `process`",
    ),
];

#[tokio::test]
async fn each_kind_of_identity_signs_as_aws_documents_it() {
    for (what, page, set, signer, told) in IDENTITIES {
        let (_dir, vars) = home();
        let aws = Aws::default();
        let remote = aws.remote(vars(set));
        let listed = remote.list(None).try_collect::<Vec<_>>().await;
        let listed = listed.unwrap_or_else(|error| panic!("{what} ({SDK}{page}): {error:?}"));
        assert_eq!(listed.len(), 1, "{what}");
        assert_eq!(aws.0.lock().unwrap().signers, [*signer], "{what} ({SDK}{page})");
        let provider = remote.connection().unwrap().provider;
        assert!(provider.contains(told), "{what}: {provider}");
        assert!(!format!("{remote:?} {provider}").contains("hush"), "{what}");
    }
}

/// What is set, and the kind and text of the error.
type Refused = (Vec<(&'static str, &'static str)>, ErrorKind, &'static [&'static str]);

#[tokio::test(start_paused = true)]
async fn what_cannot_be_an_identity_says_what_helps_and_nothing_secret() {
    use ErrorKind::{Config, Denied, Unsupported};
    let of_profile =
        |name: &'static str, kind, says: &'static [&'static str]| (vec![("AWS_PROFILE", name)], kind, says);
    let full = |url| vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", url), ("AWS_PROFILE", "empty")];
    let refusals: Vec<Refused> = vec![
        of_profile("process-open", Denied, &["process-open", "close the quotes"]),
        of_profile("mfa", Unsupported, &["`mfa_serial`", "export-credentials --profile mfa"]),
        of_profile("round", Config, &["round -> about -> round"]),
        of_profile("alone", Config, &["alone -> alone"]),
        of_profile(
            "by-nobody",
            Config,
            &["role_arn", "add source_profile (it may be `by-nobody` itself)", "credential_source"],
        ),
        of_profile("by-both", Config, &["both source_profile and credential_source"]),
        of_profile("by-odd", Config, &["credential_source = Magic", "Ec2InstanceMetadata"]),
        of_profile("by-none", Config, &["source_profile = nowhere", "no such profile"]),
        of_profile("by-empty", Config, &["from empty, where there are none"]),
        of_profile("of-environment", Config, &["from Environment, where there are none"]),
        of_profile("denied", Denied, &["role/other of the profile `denied`", "AccessDenied: not authorized"]),
        of_profile("forever", Config, &["duration_seconds = 1h"]),
        of_profile("no-role", Config, &["source_profile and no role_arn"]),
        of_profile("sso-out", Denied, &["has expired", "aws sso login --profile sso-out"]),
        of_profile("sso-never", Denied, &["nobody has logged in", "aws sso login --profile sso-never"]),
        of_profile("sso-nowhere", Config, &["[sso-session nowhere], which does not exist"]),
        of_profile("sso-half", Config, &["no sso_role_name"]),
        of_profile("login-out", Denied, &["it has expired", "aws login --profile login-out", "the session is over"]),
        of_profile("login-never", Denied, &["nobody has logged in", "aws login --profile login-never"]),
        (full("http://10.0.0.7/x"), Config, &["not encrypted", "169.254.170.23"]),
        (full("http://localhost.example/x"), Config, &["not encrypted"]),
        (full("127.0.0.1/x"), Config, &["is not a url"]),
        (vec![("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "x"), ("AWS_PROFILE", "empty")], Config, &["not a path"]),
        (full("http://localhost/denied"), Denied, &["container", "403"]),
        (
            [full("http://localhost/open"), vec![("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "{dir}/none")]].concat(),
            Denied,
            &["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE cannot be read", "none"],
        ),
        (
            [full("http://localhost/open"), vec![("AWS_CONTAINER_AUTHORIZATION_TOKEN", "hush\nhush")]].concat(),
            Config,
            &["AWS_CONTAINER_AUTHORIZATION_TOKEN holds a line break"],
        ),
        (
            vec![("AWS_ACCESS_KEY_ID", "AK\nhush"), ("AWS_SECRET_ACCESS_KEY", "hush")],
            Config,
            &["AWS_ACCESS_KEY_ID holds a line break"],
        ),
        (vec![("AWS_PROFILE", "role"), ("AWS_REGION", "eu west")], Config, &["not an AWS region"]),
        (
            vec![("AWS_PROFILE", "role"), ("AWS_ENDPOINT_URL_STS", "http://sts")],
            Config,
            &["AWS_ENDPOINT_URL_STS", "https"],
        ),
    ];
    for (set, kind, says) in refusals {
        let (_dir, vars) = home();
        let aws = Aws::default();
        let error = aws.remote(vars(&set)).connect().await.unwrap_err();
        let text = format!("{error:#}");
        assert_eq!(error.kind(), kind, "{text}");
        assert!(says.iter().all(|part| text.contains(part)), "{text}");
        assert!(!format!("{text} {error:?}").contains("hush"), "{error:?}");
        assert!(aws.0.lock().unwrap().signers.is_empty(), "nothing else signs instead: {text}");
    }
}

/// With a real clock: waiting for a program involves no timer.
#[cfg(unix)]
#[tokio::test]
async fn a_program_that_gives_no_credentials_is_told_without_its_words() {
    for (profile, says) in [
        ("process-missing", "cannot be run"),
        ("process-fails", "ended with exit status: 1"),
        ("process-odd", "it is not JSON"),
        ("process-two", "its Version is not 1"),
        ("process-half", "it has no SecretAccessKey"),
    ] {
        let (_dir, vars) = home();
        let error = Aws::default().remote(vars(&[("AWS_PROFILE", profile)])).connect().await.unwrap_err();
        let text = format!("{error:#} {error:?}");
        assert_eq!(error.kind(), ErrorKind::Denied, "{text}");
        assert!(text.contains(says) && text.contains(&format!("profile `{profile}`")), "{text}");
        assert!(!text.contains("hush"), "{text}");
    }
}

/// With a clock that is set forward.
#[tokio::test(start_paused = true)]
async fn what_ends_is_renewed_before_it_does_and_an_outage_of_who_gives_it_is_waited_out() {
    let minutes = |n: u64| tokio::time::advance(Duration::from_secs(60 * n));
    for (profile, host) in
        [("role", STS), ("web", STS), ("sso", "portal.sso.us-east-2.amazonaws.com"), ("empty", "localhost")]
    {
        let (_dir, vars) = home();
        let aws = Aws::default();
        let open = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost/open");
        let remote = aws.remote(vars(&[("AWS_PROFILE", profile), open]));
        let list = || remote.list(None).try_collect::<Vec<_>>();
        list().await.unwrap();
        minutes(54).await;
        list().await.unwrap();
        assert_eq!(aws.asked(host), 1, "{profile}: good for 5 minutes and more");
        minutes(2).await;
        list().await.unwrap();
        list().await.unwrap();
        assert_eq!(aws.asked(host), 2, "{profile}: renewed once");
        aws.0.lock().unwrap().down = true;
        minutes(56).await;
        list().await.unwrap();
        let asked = aws.asked(host);
        assert!(asked > 2, "{profile}");
        list().await.unwrap();
        assert_eq!(aws.asked(host), asked, "{profile}: not with every request");
        minutes(5).await;
        let error = crate::errors::store_error(list().await.unwrap_err(), "cannot be listed");
        assert_eq!(error.kind(), ErrorKind::Io, "{error:#}");
        assert!(format!("{error:#}").contains("credentials do not come from"), "{error:#}");
        aws.0.lock().unwrap().down = false;
        list().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_lasts_for_minutes_is_not_asked_for_with_every_request() {
    let (_dir, vars) = home();
    let aws = Aws::default();
    aws.0.lock().unwrap().lasts = Some(Duration::from_secs(120));
    let remote = aws.remote(vars(&[("AWS_PROFILE", "role")]));
    for (seconds, asked) in [(0, 1), (50, 1), (20, 2), (1, 2)] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        remote.list(None).try_collect::<Vec<_>>().await.unwrap();
        assert_eq!(aws.asked(STS), asked);
    }
}

#[tokio::test]
async fn a_token_that_the_store_calls_expired_is_asked_for_anew_by_all_of_the_chain() {
    let (_dir, vars) = home();
    let aws = Aws::default();
    let remote = aws.remote(vars(&[("AWS_PROFILE", "outer")]));
    remote.list(None).try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(aws.asked(STS), 2);
    aws.0.lock().unwrap().expired = 1;
    remote.list(None).try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(aws.asked(STS), 4);
}

#[tokio::test]
async fn a_renewed_token_of_single_sign_on_is_kept_for_others() {
    let (dir, vars) = home();
    let aws = Aws::default();
    let file = dir.path().join(".aws/sso/cache").join(format!("{}.json", hex(&Sha1::digest("stale"))));
    for _ in 0..2 {
        aws.remote(vars(&[("AWS_PROFILE", "sso-stale")])).connect().await.unwrap();
    }
    assert_eq!(aws.asked("oidc.us-east-2.amazonaws.com"), 1, "the second one read what the first had kept");
    let kept: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!((&kept["accessToken"], &kept["refreshToken"]), (&json!("hush-fresh"), &json!("hush-next")));
    assert_eq!(kept["startUrl"], "https://lab.awsapps.com/start", "what others put in stays");
    assert!(time(kept["expiresAt"].as_str().unwrap()).unwrap() > SystemTime::now());
    #[cfg(unix)]
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions()) & 0o777, 0o600);
}

#[tokio::test]
async fn services_are_asked_where_aws_has_them() {
    let fips = ("AWS_USE_FIPS_ENDPOINT", "true");
    let dual = ("AWS_USE_DUALSTACK_ENDPOINT", "true");
    let there = ("AWS_ENDPOINT_URL_STS", "https://vpce-1.sts.example");
    let rows: [(&str, &str, Set<'_>, &str); 14] = [
        ("role", "us-west-2", &[], "sts.us-west-2.amazonaws.com"),
        ("role", "cn-north-1", &[], "sts.cn-north-1.amazonaws.com.cn"),
        ("role", "eusc-de-east-1", &[], "sts.eusc-de-east-1.amazonaws.eu"),
        ("role", "us-isob-east-1", &[dual], "sts.us-isob-east-1.api.aws.scloud"),
        ("role", "us-west-2", &[fips], "sts-fips.us-west-2.amazonaws.com"),
        ("role", "us-gov-west-1", &[fips], "sts.us-gov-west-1.amazonaws.com"),
        ("role", "us-west-2", &[fips, dual], "sts-fips.us-west-2.api.aws"),
        ("role", "us-west-2", &[there, fips], "vpce-1.sts.example"),
        ("elsewhere", "us-west-2", &[("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")], "sts.us-west-2.amazonaws.com"),
        ("fips", "us-west-2", &[], "sts-fips.us-west-2.amazonaws.com"),
        ("sso", "us-west-2", &[fips], "portal.sso-fips.us-east-2.amazonaws.com"),
        ("login-out", "cn-north-1", &[], "cn-north-1.signin.amazonaws.cn"),
        ("login-out", "us-west-2", &[fips], "signin-fips.us-west-2.amazonaws.com"),
        ("empty", "us-west-2", &[("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv6")], "[fd00:ec2::254]"),
    ];
    for (profile, region, set, host) in rows {
        let (_dir, vars) = home();
        let aws = Aws::default();
        let set = [&[("AWS_PROFILE", profile), ("AWS_REGION", region)], set].concat();
        // The service exists in one region only.
        aws.remote(vars(&set)).connect().await.unwrap_err();
        assert_eq!(aws.0.lock().unwrap().hosts[0], host, "{profile} {region}");
    }
}

/// The stand-in for the network can't test this: that the client itself can reach the services.
#[tokio::test]
async fn containers_and_the_token_service_are_asked_over_sockets() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let mut asked = Vec::new();
        while asked.len() < 2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            // The end of the body sent to the token service.
            while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"DurationSeconds=900&ExternalId=E%261") {
                assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
            }
            let head = String::from_utf8(head).unwrap();
            let body = match head.starts_with("GET /c ") && head.contains("authorization: hush\r\n") {
                true => json!({"AccessKeyId": "ASIA.c", "SecretAccessKey": "hush", "Token": "hush"}).to_string(),
                false => {
                    let plain = ["AccessKeyId", "SecretAccessKey", "SessionToken"];
                    let plain: String = plain.iter().map(|name| format!("<{name}>hush</{name}>")).collect();
                    format!("<Credentials>{plain}<Expiration>2100-01-01T00:00:00Z</Expiration></Credentials>")
                }
            };
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            asked.push(head);
        }
        asked
    });
    let (_dir, vars) = home();
    let vars = vars(&[
        ("AWS_PROFILE", "over-sockets"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &format!("http://{at}/c")),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "hush"),
        ("AWS_ENDPOINT_URL_STS", &format!("http://{at}/")),
        ("AWS_ALLOW_HTTP", "true"),
    ]);
    Remote::new("b", "s3://b", vars).connect().await.unwrap();
    let asked = serving.await.unwrap();
    assert!(asked[1].starts_with("POST / ") && asked[1].contains("Credential=ASIA.c/"), "{}", asked[1]);
}

#[tokio::test]
async fn a_renewed_login_is_kept_for_others() {
    let (dir, vars) = home();
    let aws = Aws::default();
    for _ in 0..2 {
        aws.remote(vars(&[("AWS_PROFILE", "login-stale")])).connect().await.unwrap();
    }
    assert_eq!(aws.asked("eu-west-1.signin.aws.amazon.com"), 1, "the second one read what the first had kept");
    let name = hex(&Sha256::digest("arn:aws:iam::123456789012:user/stale"));
    let kept = fs::read(dir.path().join(format!(".aws/login/cache/{name}.json"))).unwrap();
    let kept: Value = serde_json::from_slice(&kept).unwrap();
    assert_eq!((&kept["refreshToken"], &kept["clientId"]), (&json!("hush-next"), &json!("cli")));
    assert_eq!(kept["accessToken"]["accountId"], "123456789012");
}

#[test]
fn times_are_read_as_services_and_programs_write_them() {
    let right = humantime::parse_rfc3339("2026-11-27T22:30:00Z").unwrap();
    for text in [
        "2026-11-27T22:30:00Z",
        "2026-11-27T22:30:00UTC",
        "2026-11-27T22:30:00+00:00",
        "2026-11-27T22:30:00.000000+00:00",
        "2026-11-28T04:15:00+0545",
        "2026-11-27T14:30:00-08:00",
        " 2026-11-27T22:30:00 ",
    ] {
        assert_eq!(time(text), Some(right), "{text}");
    }
    for text in
        ["", "soon", "2026-11-27T22:30:00+", "2026-11-27T22:30:00+é0:00", "2026-11-27T+1", "99999-01-01T00:00:00Z"]
    {
        assert_eq!(time(text), None, "{text}");
    }
}
