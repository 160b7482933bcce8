//! A bucket that connects itself, and connects again if its credentials or its region turn out to be stale.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use futures::{StreamExt, future::BoxFuture, stream::BoxStream};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    random::jitter,
    report::Stage,
};
use object_store::{
    BackoffConfig, ClientOptions, CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    client::{HttpRequest, HttpRequestBody},
    list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore},
    path::Path,
};
use reqwest::header::{HeaderMap, HeaderValue};
use tokio::runtime::{Handle, Id};

use super::{
    BucketKind, Connection, Connector, Vars, credentials,
    endpoint::{self, Style, Wishes},
    explain::{self, Doing},
    folders,
    pages::{Pages, wrap},
    profile::Profile,
    used,
};
use crate::answer::{Answer, Phase, Remedy, our_error, with_answer};

/// For finding credentials and region together.
const CREDENTIALS: Duration = Duration::from_secs(10);
/// A store may be far away or busy; one that takes longer to accept a connection is down.
const CONNECT: Duration = Duration::from_secs(3);
/// Between two pieces of an answer. `object_store` sets none by default, and a stalled connection would hang forever.
const READ: Duration = Duration::from_secs(10);
/// For a whole answer, in listings; reads have deadlines of their own.
const WHOLE: Duration = Duration::from_secs(120);
/// For a store that has never answered, because its endpoint may be mistyped.
const FIRST_CONTACT: Duration = Duration::from_secs(10);
/// The wait between a failure and the next request; doubled each time, up to the longest.
const BACK_OFF: BackoffConfig =
    BackoffConfig { init_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(2), base: 2.0 };
/// The most failures of unknown cause, such as a listing whose answer broke off. After that the store is at fault.
const UNKNOWN: u32 = 4;
/// The most clients that are kept, one per tokio runtime.
const CLIENTS: usize = 8;

/// A bucket. A clone is another handle.
#[derive(Clone)]
pub(crate) struct Remote(Arc<Inner>);

struct Inner {
    bucket: String,
    url: String,
    vars: Vars,
    live: Mutex<Option<Arc<Live>>>,
    /// Held while connecting, so that it happens only once.
    gate: tokio::sync::Mutex<()>,
    count: AtomicU64,
    /// How long to wait during an outage, in milliseconds.
    patience: AtomicU64,
    /// Whether it has answered any request.
    reached: AtomicBool,
    /// Replaces the network, for tests.
    #[cfg(test)]
    answers: Option<object_store::client::HttpClient>,
}

/// An established connection.
struct Live {
    /// Later connections have higher numbers.
    number: u64,
    connection: Connection,
    builder: AmazonS3Builder,
    /// The same for reads and look-ups, which also request checksums.
    reading: AmazonS3Builder,
    clients: Mutex<Vec<(Id, Retries, Arc<AmazonS3>)>>,
}

/// Which code retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retries {
    /// The client itself: for writes, whose parts it keeps.
    Client,
    /// [`Remote::attempt`]: for listings and look-ups.
    Here,
    /// The caller, which must see each refusal to slow down: for reads (see [`requests`](crate::requests)).
    Caller,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// The client for the calling runtime.
    fn client(&self, retries: Retries, patience: Duration) -> Result<Arc<AmazonS3>> {
        let id = runtime()?.id();
        let retries = if retries == Retries::Here { Retries::Caller } else { retries };
        let mut clients = lock(&self.clients);
        if let Some((.., client)) = clients.iter().find(|(of, who, _)| (*of, *who) == (id, retries)) {
            return Ok(Arc::clone(client));
        }
        // Limited by patience only. The number of retries has a separate limit.
        let (builder, max_retries) = match retries {
            Retries::Client => (&self.builder, 10_000),
            Retries::Here | Retries::Caller => (&self.reading, 0),
        };
        let retry = RetryConfig { max_retries, retry_timeout: patience, backoff: BACK_OFF };
        let client = Arc::new(builder.clone().with_retry(retry).build().map_err(|e| bad_setting(&e))?);
        if clients.len() == CLIENTS {
            clients.remove(0);
        }
        clients.push((id, retries, Arc::clone(&client)));
        Ok(client)
    }
}

fn runtime() -> Result<Handle> {
    Handle::try_current().map_err(|_| {
        Error::config("reading s3:// needs a tokio runtime with I/O and time enabled")
            .with_hint("await it in tokio, or use a Loader")
    })
}

/// The texts of these errors repeat at most one value, and no secret value is parsed.
fn bad_setting(error: &object_store::Error) -> Error {
    Error::config(format!("a setting of the bucket is not valid: {error}")).with_hint("check the AWS_* variables")
}

impl Remote {
    pub(crate) fn new(bucket: &str, url: &str, vars: Vars) -> Self {
        Self(Arc::new(Inner {
            bucket: bucket.to_owned(),
            url: url.to_owned(),
            vars,
            live: Mutex::default(),
            gate: tokio::sync::Mutex::default(),
            count: AtomicU64::new(0),
            patience: AtomicU64::new(0),
            reached: AtomicBool::new(false),
            #[cfg(test)]
            answers: None,
        }))
    }

    /// A bucket whose requests are answered by this instead of the network.
    #[cfg(test)]
    pub(super) fn answered_by(mut self, answers: object_store::client::HttpClient) -> Self {
        Arc::get_mut(&mut self.0).expect("it is new").answers = Some(answers);
        self
    }

    /// Sets how long to wait during an outage.
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.0.patience.store(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.0.patience.load(Ordering::Relaxed))
    }

    fn client(&self, live: &Live, retries: Retries) -> object_store::Result<Arc<AmazonS3>> {
        live.client(retries, self.patience()).map_err(wrap)
    }

    async fn client_for_writes(&self) -> object_store::Result<Arc<AmazonS3>> {
        let live = self.live().await.map_err(wrap)?;
        self.client(&live, Retries::Client)
    }

    /// How the bucket was reached; `None` before that.
    pub(crate) fn connection(&self) -> Option<Connection> {
        lock(&self.0.live).as_ref().map(|live| live.connection.clone())
    }

    pub(crate) fn vars(&self) -> &Vars {
        &self.0.vars
    }

    /// Whether it is a directory bucket of S3 Express, which lists in no order and only from the beginning.
    pub(crate) fn is_directory(&self) -> bool {
        matches!(BucketKind::of(&self.0.bucket), Ok(BucketKind::Directory { .. }))
    }

    /// The page of keys that begin with `prefix` and come after `after`.
    pub(crate) async fn page_after(
        &self,
        prefix: String,
        after: Option<String>,
    ) -> object_store::Result<PaginatedListResult> {
        self.page(prefix, after, None, false).await
    }

    /// Finds credentials and region, unless they are known already.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.live().await.map(|_| ())
    }

    async fn live(&self) -> Result<Arc<Live>> {
        let live = lock(&self.0.live).clone();
        match live {
            Some(live) => Ok(live),
            None => self.renew(0, None).await,
        }
    }

    /// Connects again, unless another caller has done so since the connection `number`.
    async fn renew(&self, number: u64, region: Option<String>) -> Result<Arc<Live>> {
        let at = |e: Error| e.at_stage(Stage::Open).at_object(self.0.url.as_str());
        runtime().map_err(at)?;
        let _gate = self.0.gate.lock().await;
        if let Some(live) = lock(&self.0.live).clone().filter(|live| live.number > number) {
            return Ok(live);
        }
        let connected = tokio::time::timeout(CREDENTIALS, self.establish(region)).await.unwrap_or_else(|_| {
            let what = format!("no credentials within {} s", CREDENTIALS.as_secs());
            Err(Error::new(ErrorKind::Denied, what)
                .with_hint("set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"))
        });
        let live = Arc::new(connected.map_err(at)?);
        let Connection { provider, region, endpoint, .. } = &live.connection;
        tracing::info!(bucket = self.0.bucket, provider, region, endpoint, "connected");
        *lock(&self.0.live) = Some(Arc::clone(&live));
        Ok(live)
    }

    async fn establish(&self, right_region: Option<String>) -> Result<Live> {
        let Inner { bucket, vars, count, .. } = &*self.0;
        check_clock(SystemTime::now())?;
        used::check(vars)?;
        let kind = BucketKind::of(bucket)?;
        let profile = Profile::find(vars)?;
        let of_profile = |key| profile.as_ref().and_then(|p| p.get(key)).map(str::to_owned);
        used::tell_unused(vars, profile.as_ref());
        let both = used::both(vars, profile.as_ref());
        let (options, connector) = client_options(vars, of_profile("ca_bundle").as_deref())?;
        #[cfg(test)]
        let connector = connector.answered_by(self.0.answers.clone());
        let wishes = Wishes {
            endpoint: custom_endpoint(vars, &both, profile.as_ref())?,
            style: style(vars, &both)?,
            fips: both.flag("AWS_USE_FIPS_ENDPOINT")?,
            dual_stack: both.flag("AWS_USE_DUALSTACK_ENDPOINT")?,
            accelerate: both.flag("AWS_S3_USE_ACCELERATE_ENDPOINT")?,
        };

        let configured = vars.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]).map(str::to_owned);
        let configured = configured.or_else(|| of_profile("region"));
        let found = credentials::find(vars, profile.as_ref(), configured.as_deref(), &options, &connector).await?;
        let region = match (kind, right_region.or(configured)) {
            (BucketKind::AccessPoint { region, .. }, configured) => {
                check_region_of_arn(region, configured.as_deref(), &both)?;
                region.to_owned()
            }
            (_, Some(region)) => region,
            (BucketKind::Directory { zone }, None) => {
                let what =
                    format!("the region of the directory bucket is not known: its name contains only the zone {zone}");
                return Err(Error::config(what).with_hint("set AWS_REGION to the bucket's region, such as us-west-2"));
            }
            (_, None) => self.look_up_region(&wishes, &options, &connector).await.unwrap_or_else(|| "us-east-1".into()),
        };
        let at = endpoint::find(bucket, &region, &wishes)?;

        let payer = vars.get("AWS_REQUEST_PAYER").is_some_and(|payer| payer.eq_ignore_ascii_case("requester"));
        let mut requester_pays = payer || vars.flag("AWS_REQUEST_PAYER")?;
        let mut settings = used::settings(vars)?;
        if let BucketKind::Directory { .. } = kind {
            for_directory(&mut settings, &mut requester_pays)?;
        }
        let mut builder = AmazonS3Builder::new().with_client_options(options.clone());
        for (key, value) in &settings {
            builder = builder.with_config(*key, value);
        }
        builder = builder
            .with_bucket_name(bucket)
            .with_region(&region)
            .with_endpoint(&at.url)
            .with_virtual_hosted_style_request(at.virtual_hosted)
            .with_s3_express(matches!(kind, BucketKind::Directory { .. }))
            .with_request_payer(requester_pays)
            .with_http_connector(connector);
        builder = match found.credentials {
            Some(credentials) => builder.with_credentials(credentials),
            None => builder.with_skip_signature(true),
        };
        let connection = Connection {
            provider: found.provider,
            region,
            endpoint: at.url,
            path_style: !at.virtual_hosted,
            requester_pays,
            commit: None,
        };
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut headers = HeaderMap::new();
        if asks_for_checksums(&both)? {
            // Signed with the other headers, because the builder adds it before signing; a client would add it after.
            headers.insert("x-amz-checksum-mode", HeaderValue::from_static("ENABLED"));
        }
        let of_client = settings.iter().filter(|(key, _)| matches!(key, AmazonS3ConfigKey::Client(_)));
        let reading = builder.clone().with_client_options(options.with_default_headers(headers));
        let reading = of_client.fold(reading, |reading, (key, value)| reading.with_config(*key, value));
        let live = Live { number, connection, builder, reading, clients: Mutex::default() };
        live.client(Retries::Caller, self.patience())?;
        Ok(live)
    }

    /// Asks the store for the bucket's region. Stores that do not return one have no regions.
    async fn look_up_region(&self, wishes: &Wishes, options: &ClientOptions, connector: &Connector) -> Option<String> {
        let bucket = &self.0.bucket;
        let anywhere = Wishes { style: Style::Path, accelerate: false, ..wishes.clone() };
        let url = format!("{}/{bucket}", endpoint::find(bucket, "us-east-1", &anywhere).ok()?.url);
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = "HEAD".parse().ok()?;
        *request.uri_mut() = url.parse().ok()?;
        let client = connector.plain(options).ok()?;
        let response = client.execute(request).await.ok()?;
        let region = response.headers().get("x-amz-bucket-region")?.to_str().ok()?;
        Some(region.to_owned()).filter(|region| !region.is_empty())
    }

    /// Does `work` with retries during an outage, and explains refusals.
    async fn attempt<T, F>(&self, doing: Doing, retries: Retries, work: F) -> object_store::Result<T>
    where
        F: Fn(Arc<AmazonS3>) -> BoxFuture<'static, object_store::Result<T>> + Send + Sync,
        T: Send,
    {
        let began = tokio::time::Instant::now();
        let (mut tries, mut unknown, mut told) = (0_u32, 0, false);
        loop {
            let (error, live) = match self.once(retries, &work).await? {
                Ok(done) => {
                    self.0.reached.store(true, Ordering::Relaxed);
                    return Ok(done);
                }
                Err(failed) => failed,
            };
            let waits = match Answer::of(&error) {
                Some(Answer::Refused(refusal)) => refusal.remedy() != Remedy::None,
                Some(Answer::Broken(broken)) => broken.phase != Phase::Handshake,
                None => {
                    unknown += 1;
                    matches!(error, object_store::Error::Generic { .. })
                        && our_error(&error).is_none()
                        && unknown < UNKNOWN
                }
            };
            let reached = self.0.reached.load(Ordering::Relaxed);
            let patience = if reached { self.patience() } else { self.patience().min(FIRST_CONTACT) };
            if retries != Retries::Here || !waits || began.elapsed() >= patience {
                return Err(self.explain(error, doing, &live));
            }
            let pause = (BACK_OFF.init_backoff * (1 << tries.min(8))).min(BACK_OFF.max_backoff);
            if !told && began.elapsed() + pause > Duration::from_secs(1) {
                let (bucket, seconds) = (&self.0.bucket, patience.as_secs());
                tracing::warn!(bucket, seconds, %error, "the store does not answer; still retrying");
                told = true;
            }
            tries += 1;
            tokio::time::sleep(pause.mul_f64(0.5 + jitter(u64::from(tries)))).await;
        }
    }

    /// Does `work` once, and again if connecting again may help. An error is returned with the connection that it
    /// occurred on.
    async fn once<T, F>(
        &self,
        retries: Retries,
        work: &F,
    ) -> object_store::Result<Result<T, (object_store::Error, Arc<Live>)>>
    where
        F: Fn(Arc<AmazonS3>) -> BoxFuture<'static, object_store::Result<T>> + Send + Sync,
        T: Send,
    {
        let live = self.live().await.map_err(wrap)?;
        let error = match with_answer(work(self.client(&live, retries)?)).await {
            Ok(done) => return Ok(Ok(done)),
            Err(error) => error,
        };
        let Some(renewed) = self.heal(&error, &live).await.map_err(wrap)? else { return Ok(Err((error, live))) };
        let again = with_answer(work(self.client(&renewed, retries)?)).await;
        Ok(again.map_err(|error| (error, renewed)))
    }

    /// Connects again if that may help.
    async fn heal(&self, error: &object_store::Error, live: &Live) -> Result<Option<Arc<Live>>> {
        let Some(Answer::Refused(refusal)) = Answer::of(error) else { return Ok(None) };
        if explain::expired(&refusal) {
            tracing::warn!(
                bucket = self.0.bucket,
                provider = live.connection.provider,
                "the session token has expired; requesting a new one"
            );
            return self.renew(live.number, Some(live.connection.region.clone())).await.map(Some);
        }
        let asked = &live.connection.region;
        if explain::misdirected(&refusal, &live.connection)
            && let Some(right) = refusal.region.filter(|region| region != asked)
        {
            tracing::warn!(
                bucket = self.0.bucket,
                region = right,
                asked,
                "the bucket is in another region; reading it there (reading across regions is slow and costs money)"
            );
            return self.renew(live.number, Some(right)).await.map(Some);
        }
        Ok(None)
    }

    fn explain(&self, error: object_store::Error, doing: Doing, live: &Live) -> object_store::Error {
        let meaning =
            Answer::of(&error).and_then(|answer| explain::explain(&answer, doing, &self.0.bucket, &live.connection));
        match meaning {
            // Keeps object_store's kind, on which callers branch.
            Some(meaning) if matches!(error, object_store::Error::NotFound { .. }) => {
                object_store::Error::NotFound { path: self.0.url.clone(), source: Box::new(meaning) }
            }
            Some(meaning) => wrap(meaning),
            None => error,
        }
    }
}

impl Pages for Remote {
    fn starts_anywhere(&self) -> bool {
        !self.is_directory()
    }

    async fn page(
        &self,
        prefix: String,
        after: Option<String>,
        token: Option<String>,
        folders: bool,
    ) -> object_store::Result<PaginatedListResult> {
        self.attempt(Doing::Listing, Retries::Here, move |client| {
            let options = PaginatedListOptions {
                offset: after.clone(),
                page_token: token.clone(),
                delimiter: folders.then(|| "/".into()),
                ..PaginatedListOptions::default()
            };
            let prefix = prefix.clone();
            Box::pin(async move { client.list_paginated((!prefix.is_empty()).then_some(&prefix), options).await })
        })
        .await
    }
}

/// The signing code counts seconds from 1970 on, and does not support earlier times.
pub(super) fn check_clock(now: SystemTime) -> Result<()> {
    if now >= SystemTime::UNIX_EPOCH {
        return Ok(());
    }
    Err(Error::config("this machine's clock is before 1970, and requests are signed with the time")
        .with_hint("set the clock"))
}

/// The configured endpoint, checked.
fn custom_endpoint(vars: &Vars, both: &Vars, profile: Option<&Profile>) -> Result<Option<String>> {
    if both.flag("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")? {
        return Ok(None);
    }
    let endpoint = vars.first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]);
    let of_profile = || profile.and_then(|profile| profile.endpoint_of("s3").or_else(|| profile.get("endpoint_url")));
    endpoint.or_else(of_profile).map(|at| endpoint::check(at, vars)).transpose()
}

fn style(vars: &Vars, both: &Vars) -> Result<Style> {
    const NAME: &str = "AWS_VIRTUAL_HOSTED_STYLE_REQUEST";
    if vars.get(NAME).is_some() {
        return Ok(if vars.flag(NAME)? { Style::Virtual } else { Style::Path });
    }
    match both.get("AWS_S3_ADDRESSING_STYLE") {
        None => Ok(Style::Unsaid),
        Some("path") => Ok(Style::Path),
        Some("virtual") => Ok(Style::Virtual),
        Some("auto") => Ok(Style::Auto),
        Some(_) => Err(Error::config("AWS_S3_ADDRESSING_STYLE, or a profile's addressing_style, is not valid")
            .with_hint("set it to path, virtual or auto")),
    }
}

/// An access point's region is in its ARN. If the user forbids another region than the configured one, a different
/// region is an error.
fn check_region_of_arn(region: &str, configured: Option<&str>, both: &Vars) -> Result<()> {
    const NAME: &str = "AWS_S3_USE_ARN_REGION";
    let Some(own) = configured.filter(|own| *own != region) else { return Ok(()) };
    if both.get(NAME).is_none() || both.flag(NAME)? {
        return Ok(());
    }
    Err(Error::config(format!("the access point is in {region}, and {NAME}=false keeps requests in {own}"))
        .with_hint(format!("set AWS_REGION={region}, or {NAME}=true")))
}

/// Whether to request checksums with answers.
fn asks_for_checksums(both: &Vars) -> Result<bool> {
    const NAME: &str = "AWS_RESPONSE_CHECKSUM_VALIDATION";
    match both.get(NAME).map(str::to_ascii_lowercase).as_deref() {
        None | Some("when_supported") => Ok(true),
        Some("when_required") => Ok(false),
        Some(_) => Err(Error::config(format!("{NAME} is neither when_supported nor when_required"))
            .with_hint(format!("unset {NAME}"))),
    }
}

/// A directory bucket's encryption is set when it is created, and its owner pays.
fn for_directory(settings: &mut Vec<(AmazonS3ConfigKey, String)>, requester_pays: &mut bool) -> Result<()> {
    use AmazonS3ConfigKey::Encryption;
    if settings.iter().any(|(key, _)| key.as_ref() == used::CUSTOMER_KEY) {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "directory buckets (S3 Express) support no customer-provided keys (SSE-C)",
        )
        .with_hint("unset AWS_SSE_CUSTOMER_KEY_BASE64 for this bucket"));
    }
    let mut unused: Vec<String> = settings
        .extract_if(.., |(key, _)| matches!(key, Encryption(_)))
        .map(|(key, _)| key.as_ref().to_ascii_uppercase())
        .collect();
    if std::mem::take(requester_pays) {
        unused.push("AWS_REQUEST_PAYER".into());
    }
    if !unused.is_empty() {
        let unused = unused.join(", ");
        tracing::warn!("{unused} is not used: a directory bucket has its own encryption, and its owner pays");
    }
    Ok(())
}

fn client_options(vars: &Vars, of_profile: Option<&str>) -> Result<(ClientOptions, Connector)> {
    let options = ClientOptions::new()
        .with_connect_timeout(CONNECT)
        .with_read_timeout(READ)
        .with_timeout(WHOLE)
        .with_allow_http(vars.flag("AWS_ALLOW_HTTP")?);
    let mut connector = Connector::default().of_s3();
    let named = ["AWS_CA_BUNDLE", "SSL_CERT_FILE"].into_iter().find_map(|name| Some((name, vars.get(name)?)));
    if let Some((name, file)) = named.or(of_profile.map(|file| ("ca_bundle", file))) {
        let bad = |what: &str| Error::config(format!("{name} {what}")).at_object(file);
        let pem = std::fs::read(file).map_err(|e| bad("names a file that cannot be read").with_source(e))?;
        let trusting = connector.with_root_certificates(&pem);
        connector =
            trusting.map_err(|_| bad("names a file without certificates").with_hint("name a file with PEM text"))?;
    }
    Ok((options, connector))
}

#[async_trait]
impl ObjectStore for Remote {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> object_store::Result<PutResult> {
        self.client_for_writes().await?.put_opts(at, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.client_for_writes().await?.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        let at = at.clone();
        let retries = if options.head { Retries::Here } else { Retries::Caller };
        self.attempt(Doing::Reading, retries, move |client| {
            let (at, options) = (at.clone(), options.clone());
            Box::pin(async move { client.get_opts(&at, options).await })
        })
        .await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let remote = self.clone();
        async_stream::try_stream! {
            let client = remote.client_for_writes().await?;
            let mut deleted = client.delete_stream(paths);
            while let Some(path) = deleted.next().await {
                yield path?;
            }
        }
        .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        folders::list(self.clone(), folders::folder(prefix))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        let prefix = prefix.cloned();
        self.attempt(Doing::Listing, Retries::Here, move |client| {
            let prefix = prefix.clone();
            Box::pin(async move { client.list_with_delimiter(prefix.as_ref()).await })
        })
        .await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.client_for_writes().await?.copy_opts(from, to, options).await
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.0.bucket)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("bucket", &self.0.bucket).field("connection", &self.connection()).finish()
    }
}
