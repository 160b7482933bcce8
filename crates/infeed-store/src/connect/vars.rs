//! The environment variables that configure access to a store.

use std::{collections::BTreeMap, fmt, sync::Arc};

#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
use infeed_core::error::{Error, Result};

/// The variables that configure access to a store: a snapshot of the environment, or values from the caller. A clone is
/// another handle. `Debug` shows only names.
#[derive(Clone)]
pub(crate) struct Vars(Arc<BTreeMap<String, String>>);

impl Vars {
    /// The environment of this process. Names and values that are not Unicode are left out.
    pub(crate) fn process() -> Self {
        Self(Arc::new(
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect(),
        ))
    }

    /// `None` for an empty value too, because launchers write `AWS_PROFILE=` for no profile.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).map(str::trim).filter(|value| !value.is_empty())
    }

    #[cfg(feature = "s3")]
    pub(super) fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    /// `true`, `1`, `yes`, `on` or their opposites.
    #[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
    pub(super) fn flag(&self, name: &'static str) -> Result<bool> {
        match self.get(name).unwrap_or("false").to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" | "y" | "t" => Ok(true),
            "false" | "0" | "no" | "off" | "n" | "f" => Ok(false),
            _ => Err(Error::config(format!("{name} is neither true nor false")).with_hint(format!("set {name}=true"))),
        }
    }

    #[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
    pub(super) fn starting_with(&self, start: &'static str) -> impl Iterator<Item = (&str, &str)> {
        let names = self.0.keys().filter(move |name| name.starts_with(start));
        names.filter_map(|name| Some((name.as_str(), self.get(name)?)))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Vars {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        Self(Arc::new(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect()))
    }
}

impl fmt::Debug for Vars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
