//! Determines the host of a bucket from the kind of its name and from AWS's hosts for that kind.
//!
//! | bucket | host | document |
//! |---|---|---|
//! | any | `s3.REGION.amazonaws.com`, with the bucket in the path or in front of the host | `userguide/VirtualHosting.html` |
//! | `NAME-s3alias` | the same, in front of the host | `userguide/access-points-naming.html` |
//! | `arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME` | `NAME-ACCOUNT.s3-accesspoint.REGION.amazonaws.com` | `userguide/using-access-points.html` |
//! | `NAME--ZONE--x-s3`, `--xa-s3` (S3 Express) | `BUCKET.s3express-ZONE.REGION.amazonaws.com` | `userguide/s3-express-Regions-and-Zones.html` |
//!
//! Combinations that AWS refuses are refused here, following botocore's endpoint rules, and with the same terms to
//! search for.

use infeed_core::error::{Error, ErrorKind, Result};

use super::Vars;

/// The kind of a bucket, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BucketKind<'a> {
    General,
    /// An access point under a name that can be used in place of a bucket's.
    Alias,
    AccessPoint {
        region: &'a str,
        account: &'a str,
        name: &'a str,
    },
    /// S3 Express: a directory bucket, or an access point of one.
    Directory {
        zone: &'a str,
    },
}

impl<'a> BucketKind<'a> {
    /// # Errors
    /// `Unsupported` for S3 features that infeed does not read, `Config` for an ARN that is not an access point.
    pub(crate) fn of(bucket: &'a str) -> Result<Self> {
        if let Some(arn) = bucket.strip_prefix("arn:") {
            return of_arn(arn);
        }
        if bucket.ends_with(".mrap") {
            return Err(several_regions());
        }
        if bucket.ends_with("--op-s3") {
            return Err(Error::new(ErrorKind::Unsupported, "a bucket of S3 on Outposts").with_hint(COPY));
        }
        if let Some(base) = bucket.strip_suffix("--x-s3").or_else(|| bucket.strip_suffix("--xa-s3")) {
            return match base.rsplit_once("--") {
                Some((name, zone)) if !name.is_empty() && !zone.is_empty() => Ok(Self::Directory { zone }),
                _ => {
                    Err(Error::config(format!("`{bucket}` ends like a directory bucket's name, but it names no zone"))
                        .with_hint("write s3://NAME--ZONE--x-s3/prefix, as in train--usw2-az1--x-s3"))
                }
            };
        }
        Ok(if bucket.ends_with("-s3alias") { Self::Alias } else { Self::General })
    }
}

const COPY: &str = "read a bucket or an access point of S3 itself, or copy the data there";

fn several_regions() -> Error {
    Error::new(ErrorKind::Unsupported, "a multi-region access point: its requests are signed for all regions (SigV4A)")
        .with_hint("name the nearest bucket, or an access point of one region")
}

fn of_arn(arn: &str) -> Result<BucketKind<'_>> {
    const FORM: &str = "write s3://arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME/prefix, or s3://BUCKET/prefix";
    let parts: Vec<&str> = arn.splitn(5, ':').collect();
    let [_, service, region, account, resource] = parts[..] else {
        return Err(Error::config(
            "the ARN is cut short, or has no region, as those of multi-region access points (SigV4A)",
        )
        .with_hint(FORM));
    };
    let name = resource.strip_prefix("accesspoint").and_then(|rest| rest.strip_prefix(['/', ':']));
    let Some(name) = name else {
        return Err(Error::config("the ARN is not of an access point").with_hint(FORM));
    };
    match service {
        "s3" => {}
        "s3express" => {
            return Err(Error::config("an access point of S3 Express is opened by its name, not by an ARN")
                .with_hint("write s3://NAME--ZONE--xa-s3/prefix"));
        }
        _ => {
            return Err(Error::new(ErrorKind::Unsupported, format!("an access point of the service `{service}`"))
                .with_hint(COPY));
        }
    }
    if region.is_empty() || name.ends_with(".mrap") {
        return Err(several_regions());
    }
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let number = account.len() == 12 && account.bytes().all(|b| b.is_ascii_digit());
    if !plain(region) || !number || name.is_empty() || !plain(name) {
        return Err(Error::config("the ARN's region, account or name is not valid").with_hint(FORM));
    }
    Ok(BucketKind::AccessPoint { region, account, name })
}

/// Where the bucket is in the url.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Style {
    /// Not set: in the path, if possible.
    #[default]
    Unsaid,
    Path,
    Virtual,
    /// In front of the host if possible, as in the SDKs.
    Auto,
}

/// The settings of the endpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Wishes {
    /// An endpoint other than AWS's, without a `/` at the end.
    pub(super) endpoint: Option<String>,
    pub(super) style: Style,
    pub(super) fips: bool,
    pub(super) dual_stack: bool,
    pub(super) accelerate: bool,
}

/// Where requests are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// Includes the bucket if that is part of the host.
    pub(super) url: String,
    pub(super) virtual_hosted: bool,
}

/// # Errors
/// `Config` if AWS has no such host, or if a client could not resolve it; `Unsupported` for S3 Express features that
/// infeed lacks.
pub(super) fn find(bucket: &str, region: &str, wishes: &Wishes) -> Result<Endpoint> {
    let Wishes { endpoint, style, fips, dual_stack, accelerate } = wishes;
    let kind = BucketKind::of(bucket)?;
    if region.is_empty() || !region.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        return Err(Error::config(format!("`{}` is not a region", region.escape_debug()))
            .with_hint("set AWS_REGION to the bucket's region, such as eu-west-1"));
    }
    check_together(kind, region, wishes)?;
    let (suffix, _) = domains(region);
    let fips = if *fips { "-fips" } else { "" };
    let dual = if *dual_stack { ".dualstack" } else { "" };
    let custom = endpoint.as_deref();
    let regional = |service: &str| {
        custom.map_or_else(|| format!("https://{service}{fips}{dual}.{region}.{suffix}"), str::to_owned)
    };
    let found = match kind {
        // Sessions are requested from this host, so no setting can change it.
        BucketKind::Directory { zone } => {
            let url = format!("https://{bucket}.s3express-{zone}.{region}.{suffix}");
            Endpoint { url, virtual_hosted: true }
        }
        BucketKind::AccessPoint { account, name, .. } => {
            hosted(&regional("s3-accesspoint"), &format!("{name}-{account}"))?
        }
        _ if *accelerate => hosted(&format!("https://s3-accelerate{dual}.{suffix}"), bucket)?,
        BucketKind::Alias | BucketKind::General => {
            let at = regional("s3");
            let before = match style {
                Style::Path => false,
                Style::Unsaid => kind == BucketKind::Alias && custom.is_none(),
                Style::Virtual => true,
                // A wildcard certificate covers one label in front of the host.
                Style::Auto => !(bucket.contains('.') && at.starts_with("https:")) && hosted(&at, bucket).is_ok(),
            };
            if before { hosted(&at, bucket)? } else { Endpoint { url: at, virtual_hosted: false } }
        }
    };
    match url::Url::parse(&found.url) {
        Ok(_) => Ok(found),
        Err(_) => Err(Error::config(format!("{} is not a url", found.url))
            .with_hint("check AWS_REGION, AWS_ENDPOINT_URL and the bucket's name")),
    }
}

/// Checks a configured endpoint and removes a `/` at its end.
pub(super) fn check(endpoint: &str, vars: &Vars) -> Result<String> {
    // Not shown in messages before it is known to contain no password.
    let parsed = url::Url::parse(endpoint).ok().filter(|url| url.has_host());
    let Some(parsed) = parsed.filter(|url| matches!(url.scheme(), "http" | "https")) else {
        return Err(Error::config("the endpoint is not a url")
            .with_hint("set AWS_ENDPOINT_URL to https://host or http://host:port"));
    };
    if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
        return Err(Error::config("the endpoint holds credentials or a query")
            .with_hint("put the keys into the AWS_* variables"));
    }
    if parsed.scheme() == "http" && !vars.flag("AWS_ALLOW_HTTP")? {
        return Err(Error::config(format!("the endpoint {endpoint} is not encrypted"))
            .with_hint("use https://, or set AWS_ALLOW_HTTP=true"));
    }
    Ok(endpoint.trim_end_matches('/').to_owned())
}

/// Refuses combinations for which AWS has no host.
fn check_together(kind: BucketKind<'_>, region: &str, wishes: &Wishes) -> Result<()> {
    let Wishes { endpoint, style, fips, dual_stack, accelerate } = wishes;
    let said = [
        (*fips, "AWS_USE_FIPS_ENDPOINT"),
        (*dual_stack, "AWS_USE_DUALSTACK_ENDPOINT"),
        (*accelerate, "AWS_S3_USE_ACCELERATE_ENDPOINT"),
    ];
    let first = said.into_iter().find_map(|(is, name)| is.then_some(name));
    let refuse = |what: String, hint: &'static str| Err(Error::config(what).with_hint(hint));
    if let (Some(_), Some(name)) = (endpoint, first) {
        return refuse(
            format!("an endpoint is set, but {name} needs one of AWS's own"),
            "unset one of them; AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true ignores endpoints",
        );
    }
    if let BucketKind::Directory { .. } = kind {
        let other = if endpoint.is_some() { Some("another endpoint") } else { first };
        return match other {
            None => Ok(()),
            Some(other) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("a directory bucket (S3 Express) is read at its zone's own endpoint, without {other}"),
            )
            .with_hint("unset it for this bucket; AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true ignores endpoints")),
        };
    }
    if *fips && region.starts_with("cn-") {
        return refuse(format!("AWS has no FIPS endpoints in {region}"), "unset AWS_USE_FIPS_ENDPOINT");
    }
    if *accelerate {
        let with = match kind {
            _ if *fips => "FIPS",
            _ if region.starts_with("cn-") => "regions of China",
            _ if *style == Style::Path => "path-style addresses",
            BucketKind::AccessPoint { .. } | BucketKind::Alias => "access points",
            _ => return Ok(()),
        };
        return refuse(format!("S3's transfer acceleration does not go with {with}"), "use only one of them");
    }
    if *style == Style::Path && matches!(kind, BucketKind::AccessPoint { .. }) {
        return refuse("an access point's ARN has no path-style address".into(), "unset the addressing style");
    }
    Ok(())
}

/// The domains of a region's services: for IPv4 only, and for IPv4 and IPv6. From botocore's `partitions.json`.
pub(super) fn domains(region: &str) -> (&'static str, &'static str) {
    let of = [
        ("cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"),
        ("eusc-", "amazonaws.eu", "api.amazonwebservices.eu"),
        ("us-iso-", "c2s.ic.gov", "api.aws.ic.gov"),
        ("us-isob-", "sc2s.sgov.gov", "api.aws.scloud"),
        ("eu-isoe-", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"),
        ("us-isof-", "csp.hci.ic.gov", "api.aws.hci.ic.gov"),
    ];
    let found = of.into_iter().find(|(start, ..)| region.starts_with(start));
    found.map_or(("amazonaws.com", "api.aws"), |(_, plain, dual)| (plain, dual))
}

/// Returns `https://bucket.host`; the endpoint may have that form already.
fn hosted(endpoint: &str, bucket: &str) -> Result<Endpoint> {
    const HINT: &str = "unset AWS_VIRTUAL_HOSTED_STYLE_REQUEST and addressing_style, to put the bucket into the path";
    let (scheme, host) = endpoint.split_once("://").unwrap_or(("https", endpoint));
    let dots = scheme == "https" && bucket.contains('.') && host.contains(".amazonaws.");
    if dots {
        let what = format!("the bucket's name `{bucket}` has dots: AWS has no certificate for such a host");
        return Err(Error::config(what).with_hint(HINT));
    }
    let label = |part: &str| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && !part.contains('_');
    if !bucket.split('.').all(label) {
        let what = format!("the bucket's name `{bucket}` cannot be part of a host name (virtual-hosted style)");
        return Err(Error::config(what).with_hint(HINT));
    }
    let address = url::Url::parse(endpoint).is_ok_and(|url| !matches!(url.host(), Some(url::Host::Domain(_))));
    if address {
        let what = format!("the endpoint {endpoint} is an address, to which no bucket's name can be added");
        return Err(Error::config(what).with_hint(HINT));
    }
    let url = match host.starts_with(&format!("{bucket}.")) {
        true => endpoint.to_owned(),
        false => format!("{scheme}://{bucket}.{host}"),
    };
    Ok(Endpoint { url, virtual_hosted: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:s3:us-west-2:123456789012:accesspoint/train";

    /// The words after bucket and region: `fips`, `dual`, `accelerate`, a style, an endpoint.
    fn wishes(words: &str) -> Wishes {
        let mut wishes = Wishes::default();
        for word in words.split_whitespace() {
            match word {
                "fips" => wishes.fips = true,
                "dual" => wishes.dual_stack = true,
                "accelerate" => wishes.accelerate = true,
                "path" => wishes.style = Style::Path,
                "virtual" => wishes.style = Style::Virtual,
                "auto" => wishes.style = Style::Auto,
                endpoint => wishes.endpoint = Some(endpoint.to_owned()),
            }
        }
        wishes
    }

    /// As botocore 1.43.11 resolves them, except that the bucket is in the path if no style is set.
    #[test]
    fn endpoints_are_those_of_the_sdks() {
        for (bucket, region, words, url) in [
            ("photos", "eu-west-1", "", "https://s3.eu-west-1.amazonaws.com"),
            ("photos", "eu-west-1", "virtual", "https://photos.s3.eu-west-1.amazonaws.com"),
            ("photos", "eu-west-1", "auto", "https://photos.s3.eu-west-1.amazonaws.com"),
            ("photos", "eu-west-1", "fips", "https://s3-fips.eu-west-1.amazonaws.com"),
            ("photos", "eu-west-1", "dual", "https://s3.dualstack.eu-west-1.amazonaws.com"),
            ("photos", "eu-west-1", "fips dual auto", "https://photos.s3-fips.dualstack.eu-west-1.amazonaws.com"),
            ("photos", "eu-west-1", "accelerate", "https://photos.s3-accelerate.amazonaws.com"),
            ("photos", "eu-west-1", "accelerate dual", "https://photos.s3-accelerate.dualstack.amazonaws.com"),
            ("photos", "cn-north-1", "", "https://s3.cn-north-1.amazonaws.com.cn"),
            ("photos", "cn-north-1", "virtual", "https://photos.s3.cn-north-1.amazonaws.com.cn"),
            ("photos", "cn-north-1", "dual", "https://s3.dualstack.cn-north-1.amazonaws.com.cn"),
            ("photos", "us-gov-west-1", "fips", "https://s3-fips.us-gov-west-1.amazonaws.com"),
            ("photos", "us-iso-east-1", "", "https://s3.us-iso-east-1.c2s.ic.gov"),
            ("photos", "us-isob-east-1", "", "https://s3.us-isob-east-1.sc2s.sgov.gov"),
            ("photos", "eu-isoe-west-1", "", "https://s3.eu-isoe-west-1.cloud.adc-e.uk"),
            ("photos", "us-isof-south-1", "", "https://s3.us-isof-south-1.csp.hci.ic.gov"),
            ("photos", "eusc-de-east-1", "", "https://s3.eusc-de-east-1.amazonaws.eu"),
            ("my_bucket", "eu-west-1", "auto", "https://s3.eu-west-1.amazonaws.com"),
            ("my.bucket", "eu-west-1", "auto", "https://s3.eu-west-1.amazonaws.com"),
            ("my.bucket", "x", "auto https://minio.example", "https://minio.example"),
            ("photos", "x", "auto http://127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("photos", "x", "virtual https://minio.example:9000", "https://photos.minio.example:9000"),
            ("photos", "x", "virtual https://photos.minio.example", "https://photos.minio.example"),
            ("train-abc-s3alias", "us-west-2", "", "https://train-abc-s3alias.s3.us-west-2.amazonaws.com"),
            ("train-abc-s3alias", "us-west-2", "path", "https://s3.us-west-2.amazonaws.com"),
            (ARN, "us-west-2", "", "https://train-123456789012.s3-accesspoint.us-west-2.amazonaws.com"),
            (ARN, "us-west-2", "fips", "https://train-123456789012.s3-accesspoint-fips.us-west-2.amazonaws.com"),
            (ARN, "us-west-2", "dual", "https://train-123456789012.s3-accesspoint.dualstack.us-west-2.amazonaws.com"),
            (ARN, "us-west-2", "https://minio.example:9000", "https://train-123456789012.minio.example:9000"),
            (
                "arn:aws-cn:s3:cn-north-1:123456789012:accesspoint:train",
                "cn-north-1",
                "",
                "https://train-123456789012.s3-accesspoint.cn-north-1.amazonaws.com.cn",
            ),
            (
                "train--usw2-az1--x-s3",
                "us-west-2",
                "path",
                "https://train--usw2-az1--x-s3.s3express-usw2-az1.us-west-2.amazonaws.com",
            ),
            (
                "t--usw2-lax1-az1--xa-s3",
                "us-west-2",
                "",
                "https://t--usw2-lax1-az1--xa-s3.s3express-usw2-lax1-az1.us-west-2.amazonaws.com",
            ),
        ] {
            let found = find(bucket, region, &wishes(words)).unwrap_or_else(|e| panic!("{bucket} {words}: {e}"));
            assert_eq!(found.url, url, "{bucket} {region} {words}");
        }
    }

    #[test]
    fn what_no_host_answers_for_is_refused_by_name() {
        let express = "train--usw2-az1--x-s3";
        for (bucket, region, words, says) in [
            ("photos", "cn-north-1", "fips", "no FIPS endpoints in cn-north-1"),
            ("photos", "cn-north-1", "accelerate", "regions of China"),
            ("photos", "eu-west-1", "accelerate fips", "does not go with FIPS"),
            ("my_bucket", "eu-west-1", "accelerate", "cannot be part of a host"),
            ("photos", "x", "fips https://minio.example", "AWS_USE_FIPS_ENDPOINT"),
            ("photos", "x", "dual https://minio.example", "AWS_USE_DUALSTACK_ENDPOINT"),
            ("photos", "x", "accelerate https://minio.example", "AWS_S3_USE_ACCELERATE_ENDPOINT"),
            ("photos", "x", "virtual http://127.0.0.1:9000", "is an address"),
            ("photos", "x", "virtual http://[::1]:9000", "is an address"),
            ("my_bucket", "eu-west-1", "virtual", "cannot be part of a host"),
            ("-bucket", "x", "virtual https://minio.example", "cannot be part of a host"),
            ("a..b", "x", "virtual https://minio.example", "cannot be part of a host"),
            ("my.bucket", "eu-west-1", "virtual", "no certificate"),
            ("photos", "eu west/1", "", "is not a region"),
            ("photos", "", "", "is not a region"),
            (ARN, "us-west-2", "path", "no path-style"),
            (ARN, "us-west-2", "accelerate", "access points"),
            (ARN, "us-west-2", "http://127.0.0.1:9000", "is an address"),
            (express, "us-west-2", "fips", "without AWS_USE_FIPS_ENDPOINT"),
            (express, "us-west-2", "dual", "without AWS_USE_DUALSTACK_ENDPOINT"),
            (express, "us-west-2", "https://minio.example", "without another endpoint"),
            ("usw2-az1--x-s3", "us-west-2", "", "names no zone"),
            ("arn:aws:s3::123456789012:accesspoint/mfzwi23gnjvgw.mrap", "us-west-2", "", "SigV4A"),
            ("mfzwi23gnjvgw.mrap", "us-west-2", "", "SigV4A"),
            ("arn:aws:s3:::photos", "us-west-2", "", "not of an access point"),
            ("arn:aws:s3:us-west-2:12:accesspoint/x", "us-west-2", "", "is not valid"),
            ("arn:aws:s3-outposts:us-west-2:123456789012:accesspoint/x", "us-west-2", "", "`s3-outposts`"),
            ("arn:aws:s3-object-lambda:us-west-2:123456789012:accesspoint/x", "us-west-2", "", "`s3-object-lambda`"),
            ("arn:aws:s3express:us-west-2:123456789012:accesspoint/x--a--xa-s3", "us-west-2", "", "--xa-s3"),
            ("arn:aws:s3", "us-west-2", "", "cut short"),
        ] {
            let error = find(bucket, region, &wishes(words)).expect_err(bucket).to_string();
            assert!(error.contains(says), "{bucket} {words}: {error}");
        }
    }
}
