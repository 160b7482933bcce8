//! Reads along what stores say in headers, which object_store's errors do not tell.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use object_store::{
    ClientOptions,
    client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector},
};

/// From the last answer that was neither a success nor a server error.
#[derive(Clone, Debug, Default)]
pub(super) struct Refused {
    /// `x-amz-bucket-region`.
    pub(super) region: Option<String>,
    /// The store's clock.
    pub(super) date: Option<String>,
}

/// Shared by all clients of a bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Arc<Mutex<Refused>>);

impl Watch {
    pub(super) fn last(&self) -> Refused {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl HttpConnector for Watch {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Watched { inner, watch: self.clone() }))
    }
}

#[derive(Debug)]
struct Watched {
    inner: HttpClient,
    watch: Watch,
}

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.inner.execute(request).await?;
        let status = response.status();
        if status.is_client_error() || status.is_redirection() {
            let header = |name| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
            *self.watch.0.lock().unwrap_or_else(PoisonError::into_inner) =
                Refused { region: header("x-amz-bucket-region"), date: header("date") };
        }
        Ok(response)
    }
}
