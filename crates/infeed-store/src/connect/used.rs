//! Which variables and profile keys are used, so that none is ignored silently.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use infeed_core::error::{Error, Result};
use object_store::{ClientConfigKey, aws::AmazonS3ConfigKey as Key};

use super::{Vars, profile::Profile};

/// `object_store`'s name for it; its type is not public.
pub(super) const CUSTOMER_KEY: &str = "aws_sse_customer_key_base64";
const KMS_KEY: &str = "aws_sse_kms_key_id";
const BUCKET_KEY: &str = "aws_sse_bucket_key_enabled";
const ENCRYPTION: &str = "aws_server_side_encryption";

/// A variable, and the equivalent keys in a profile; the first that exists is used.
const BOTH: &[(&str, &[&str])] = &[
    ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", &["ignore_configured_endpoint_urls"]),
    ("AWS_RESPONSE_CHECKSUM_VALIDATION", &["response_checksum_validation"]),
    ("AWS_S3_ADDRESSING_STYLE", &["s3.addressing_style"]),
    ("AWS_S3_USE_ACCELERATE_ENDPOINT", &["s3.use_accelerate_endpoint"]),
    ("AWS_S3_USE_ARN_REGION", &["s3_use_arn_region", "s3.use_arn_region"]),
    ("AWS_USE_DUALSTACK_ENDPOINT", &["use_dualstack_endpoint", "s3.use_dualstack_endpoint"]),
    ("AWS_USE_FIPS_ENDPOINT", &["use_fips_endpoint"]),
];

/// Read one by one by `s3.rs`.
const VARIABLES: &[&str] = &[
    "AWS_ALLOW_HTTP",
    "AWS_CA_BUNDLE",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_REQUEST_PAYER",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
];
const KEYS: &[&str] = &["ca_bundle", "endpoint_url", "region", "services"];

/// Credentials: `credentials` and `profile.rs` use them, or report why not.
const CREDENTIALS: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_DEFAULT_PROFILE",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
    "AWS_ENDPOINT_URL_STS",
    "AWS_IMDSV1_FALLBACK",
    "AWS_LOGIN_CACHE_DIRECTORY",
    "AWS_METADATA_ENDPOINT",
    "AWS_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];
const CREDENTIAL_KEYS: &[&str] = &[
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "credential_process",
    "credential_source",
    "duration_seconds",
    "external_id",
    "login_session",
    "mfa_serial",
    "role_arn",
    "role_session_name",
    "source_profile",
    "web_identity_token_file",
];

/// Prefixes of names that can't concern the reading of a bucket, for variables and (in lower case) for keys.
const ELSEWHERE: &[&str] = &[
    // Account ids, for services with the number in their host, and for people.
    "AWS_ACCOUNT_ID",
    // Batch, Lambda and other services describe to a program how they started it.
    "AWS_BATCH_",
    "AWS_EXECUTION_ENV",
    "AWS_LAMBDA_",
    "AWS_XRAY_",
    // Settings of the command line, and of `aws s3 cp`.
    "AWS_CLI_",
    "AWS_DEFAULT_OUTPUT",
    "AWS_OUTPUT",
    "AWS_PAGER",
    "AWS_S3_MAX_",
    "AWS_S3_MULTIPART_",
    // When credentials printed by `aws configure export-credentials` expire, and which program printed them.
    "AWS_CREDENTIAL_EXPIRATION",
    "AWS_VAULT",
    // Other services.
    "AWS_BEARER_TOKEN_",
    "AWS_DISABLE_HOST_PREFIX_INJECTION",
    "AWS_DISABLE_REQUEST_COMPRESSION",
    "AWS_ENABLE_ENDPOINT_DISCOVERY",
    "AWS_ENDPOINT_URL_",
    "AWS_REQUEST_MIN_COMPRESSION_SIZE_BYTES",
    // How SDKs check writes, identify themselves, and find their configuration.
    "AWS_REQUEST_CHECKSUM_CALCULATION",
    "AWS_SDK_",
    "AWS_TOOLING_",
    // Regions and hosts of the token service and of single sign-on, which are reachable from anywhere.
    "AWS_SSO_",
    "AWS_STS_REGIONAL_ENDPOINTS",
];

/// # Errors
/// `Config` for a value that does not fit into a header, such as a token with a line break.
pub(super) fn check(vars: &Vars) -> Result<()> {
    match vars.starting_with("AWS_").find(|(_, value)| value.contains(|c: char| c.is_ascii_control())) {
        None => Ok(()),
        Some((name, _)) => Err(Error::config(format!("{name} holds a line break or another control character"))
            .with_hint("set it again, on one line")),
    }
}

/// The settings of endpoints and answers, each under the name of its variable.
pub(super) fn both(vars: &Vars, profile: Option<&Profile>) -> Vars {
    let of_profile = |keys: &[&str]| keys.iter().find_map(|key| profile?.get(key));
    BOTH.iter().filter_map(|(name, keys)| Some((*name, vars.get(name).or_else(|| of_profile(keys))?))).collect()
}

/// The variables that are passed to `object_store`: for writing and for the client. infeed handles all others itself.
fn setting(name: &str) -> Option<Key> {
    let key: Key = name.to_ascii_lowercase().parse().ok()?;
    let passes = match key {
        Key::Checksum
        | Key::ConditionalPut
        | Key::CopyIfNotExists
        | Key::DisableBulkDelete
        | Key::DisableTagging
        | Key::Encryption(_)
        | Key::UnsignedPayload => true,
        // Without certificate checks a session token could go to any server.
        Key::Client(key) => !matches!(key, ClientConfigKey::AllowHttp | ClientConfigKey::AllowInvalidCertificates),
        _ => false,
    };
    passes.then_some(key)
}

/// The settings for `object_store` from variables.
///
/// # Errors
/// `Config` for encryption keys that do not fit together; no key is repeated in a message.
pub(super) fn settings(vars: &Vars) -> Result<Vec<(Key, String)>> {
    const TYPE: &str = "AWS_SERVER_SIDE_ENCRYPTION";
    let found = vars.starting_with("AWS_").filter_map(|(name, value)| Some((setting(name)?, value.to_owned())));
    let mut settings: Vec<(Key, String)> = found.collect();
    let get = |key| settings.iter().find(|(of, _)| of.as_ref() == key).map(|(_, value)| value.as_str());
    let (how, customer) = (get(ENCRYPTION), get(CUSTOMER_KEY));
    let kms = how.is_some_and(|how| how.starts_with("aws:kms"));
    let together = |name: &str, needs: &str| {
        Err(Error::config(format!("{name} is set, and {TYPE} is not `{needs}`"))
            .with_hint(format!("set {TYPE}={needs}, or unset {name}")))
    };
    if let Some(key) = customer
        && BASE64_STANDARD.decode(key).ok().is_none_or(|key| key.len() != 32)
    {
        return Err(Error::config("AWS_SSE_CUSTOMER_KEY_BASE64 is not a key")
            .with_hint("set it to the 32 bytes of the key in base64 (44 characters)"));
    }
    if customer.is_some() && how.is_some_and(|how| how != "sse-c") {
        return together("AWS_SSE_CUSTOMER_KEY_BASE64", "sse-c");
    }
    if how == Some("sse-c") && customer.is_none() {
        return Err(Error::config(format!("{TYPE} is `sse-c`, and there is no key"))
            .with_hint("set AWS_SSE_CUSTOMER_KEY_BASE64 to the 32 bytes of the key in base64"));
    }
    if get(KMS_KEY).is_some() && (customer.is_some() || how.is_some_and(|_| !kms)) {
        return together("AWS_SSE_KMS_KEY_ID", "aws:kms");
    }
    // Alone it would select Amazon's key instead of the bucket's.
    if get(BUCKET_KEY).is_some() && !kms && get(KMS_KEY).is_none() {
        return together("AWS_SSE_BUCKET_KEY_ENABLED", "aws:kms");
    }
    // A key implies its type; without a type, `object_store` would ignore the key.
    let told = match how {
        Some(_) => None,
        None if customer.is_some() => Some("sse-c"),
        None => get(KMS_KEY).map(|_| "aws:kms"),
    };
    settings.extend(told.and_then(|told| Some((ENCRYPTION.parse().ok()?, told.to_owned()))));
    Ok(settings)
}

/// Settings that have no effect, each by the name under which it is set.
fn unused(vars: &Vars, profile: Option<&Profile>) -> Vec<String> {
    let elsewhere = |name: &str| ELSEWHERE.iter().any(|start| name.starts_with(start));
    let known = |name: &str| {
        BOTH.iter().any(|(both, _)| *both == name)
            || VARIABLES.contains(&name)
            || CREDENTIALS.contains(&name)
            || setting(name).is_some()
            || elsewhere(name)
    };
    let variables = vars.starting_with("AWS_").map(|(name, _)| name).filter(|name| !known(name)).map(str::to_owned);
    let of_profile = |key: &&str| {
        let name = format!("AWS_{}", key.trim_start_matches("aws_").replace('.', "_").to_ascii_uppercase());
        let other_service = key.split_once('.').is_some_and(|(service, _)| service != "s3");
        !BOTH.iter().any(|(_, keys)| keys.contains(key))
            && !KEYS.contains(key)
            && !CREDENTIAL_KEYS.contains(key)
            && !elsewhere(&name)
            && !other_service
    };
    let keys = profile.into_iter().flat_map(|profile| {
        profile.keys().filter(of_profile).map(|key| format!("{key} of the {}", profile.describe()))
    });
    variables.chain(keys).collect()
}

/// Warns about unused settings, once per process each.
pub(super) fn tell_unused(vars: &Vars, profile: Option<&Profile>) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    for name in unused(vars, profile) {
        if told.insert(name.clone()) {
            tracing::warn!("{name} is set and not used: docs/buckets.md lists what is used");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(pairs: &[(&str, &str)]) -> Vars {
        pairs.iter().copied().collect()
    }

    #[test]
    fn what_is_not_used_is_named_and_what_is_used_is_not() {
        let used = [
            ("AWS_REGION", "x"),
            ("AWS_SSE_CUSTOMER_KEY_BASE64", "x"),
            ("AWS_SSE_KMS_KEY_ID", "x"),
            ("AWS_USE_FIPS_ENDPOINT", "x"),
            ("AWS_PROXY_URL", "x"),
            ("AWS_READ_TIMEOUT", "x"),
            ("AWS_ROLE_ARN", "x"),
            // Variables of other services.
            ("AWS_LAMBDA_FUNCTION_NAME", "x"),
            ("AWS_EXECUTION_ENV", "x"),
            ("AWS_PAGER", "x"),
            ("AWS_DEFAULT_OUTPUT", "x"),
            ("AWS_CLI_AUTO_PROMPT", "x"),
            ("AWS_ENDPOINT_URL_DYNAMODB", "x"),
            ("AWS_MAX_ATTEMPTS", ""),
            ("OTHER", "x"),
        ];
        assert_eq!(unused(&vars(&used), None), [""; 0]);
        for name in [
            "AWS_MAX_ATTEMPTS",
            "AWS_RETRY_MODE",
            "AWS_DEFAULTS_MODE",
            "AWS_S3_DISABLE_EXPRESS_SESSION_AUTH",
            "AWS_ALLOW_INVALID_CERTIFICATES",
            "AWS_BUCKET",
            "AWS_TOKEN",
            "AWS_SECURITY_TOKEN",
            "AWS_S3_EXPRESS",
            "AWS_REGOIN",
        ] {
            assert_eq!(unused(&vars(&[(name, "x")]), None), [name]);
        }
    }

    /// A new variable must be listed here, otherwise its user is warned that it is not used.
    #[test]
    fn every_variable_that_is_read_is_known() {
        let texts = [
            include_str!("credentials/container.rs"),
            include_str!("credentials/login.rs"),
            include_str!("credentials/mod.rs"),
            include_str!("credentials/service.rs"),
            include_str!("credentials/sso.rs"),
            include_str!("credentials/sts.rs"),
            include_str!("profile.rs"),
            include_str!("s3.rs"),
        ];
        let letter = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        for rest in texts.iter().flat_map(|text| text.split("\"AWS_").skip(1)) {
            let name = format!("AWS_{}", rest.chars().take_while(|c| letter(*c)).collect::<String>());
            if name == "AWS_" {
                // The prefix of all.
                continue;
            }
            assert_eq!(unused(&vars(&[(&name, "x")]), None), [""; 0], "{name}");
        }
    }

    #[test]
    fn keys_of_encryption_reach_the_store_or_are_refused_without_being_repeated() {
        let key = BASE64_STANDARD.encode([7; 32]);
        let told = |pairs: &[(&str, &str)]| {
            let settings = settings(&vars(pairs))?;
            let names = settings.iter().map(|(key, value)| format!("{}={value}", key.as_ref()));
            Ok::<_, Error>(names.collect::<Vec<_>>().join(" "))
        };
        let customer = ("AWS_SSE_CUSTOMER_KEY_BASE64", key.as_str());
        let kms = ("AWS_SSE_KMS_KEY_ID", "arn:mine");
        let how = |how| ("AWS_SERVER_SIDE_ENCRYPTION", how);
        let both = format!("aws_sse_customer_key_base64={key} aws_server_side_encryption=sse-c");
        assert_eq!(told(&[customer]).unwrap(), both);
        assert!(told(&[customer, how("sse-c")]).unwrap().contains(&key));
        assert_eq!(told(&[kms]).unwrap(), "aws_sse_kms_key_id=arn:mine aws_server_side_encryption=aws:kms");
        assert!(told(&[kms, how("aws:kms:dsse")]).unwrap().contains("arn:mine"));
        let bucket_key = ("AWS_SSE_BUCKET_KEY_ENABLED", "true");
        assert!(told(&[bucket_key, how("aws:kms")]).unwrap().contains("bucket_key_enabled=true"));
        for (pairs, says) in [
            (&[customer, how("aws:kms")][..], "AWS_SERVER_SIDE_ENCRYPTION is not `sse-c`"),
            (&[customer, kms], "AWS_SSE_KMS_KEY_ID is set"),
            (&[kms, how("AES256")], "is not `aws:kms`"),
            (&[bucket_key], "AWS_SSE_BUCKET_KEY_ENABLED is set"),
            (&[how("sse-c")], "there is no key"),
            (&[("AWS_SSE_CUSTOMER_KEY_BASE64", "aHVzaA==")], "is not a key"),
            (&[("AWS_SSE_CUSTOMER_KEY_BASE64", "hush!")], "is not a key"),
        ] {
            let error = told(pairs).unwrap_err();
            let text = format!("{error:#} {error:?}");
            assert!(text.contains(says) && !text.contains("hush") && !text.contains(&key), "{text}");
        }
    }
}
