//! The files of the AWS command line: `~/.aws/credentials` and `~/.aws/config`.
//!
//! As the SDKs read them: sections, `key = value`, comments on lines of their own, indented lines belong to the key
//! above (and are nothing that we use). In `config`, a profile is called `[profile NAME]`, but `[default]`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use infeed_core::error::{Error, ErrorKind, Result};

use super::Vars;

pub(super) type Section = BTreeMap<String, String>;

/// What the files say about one profile.
pub(super) struct Profile {
    pub(super) name: String,
    /// Where its keys stand, for messages.
    pub(super) file: PathBuf,
    values: Section,
}

impl Profile {
    /// `None` when nothing chose a profile and there is no default one.
    ///
    /// # Errors
    /// `Config` when `AWS_PROFILE` names none that exists.
    pub(super) fn find(vars: &Vars) -> Result<Option<Self>> {
        let chosen = vars.first(&["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]);
        let name = chosen.unwrap_or("default");
        let file = |variable, base| {
            let home = vars.first(&["HOME", "USERPROFILE"]);
            vars.get(variable).map(|p| expand(p, home)).or_else(|| Some(Path::new(home?).join(".aws").join(base)))
        };
        let (credentials, config) =
            (file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), file("AWS_CONFIG_FILE", "config"));
        let read = |file: &Option<PathBuf>, config| file.as_deref().map_or(Ok(BTreeMap::new()), |f| read(f, config));
        let (mut of_credentials, mut of_config) = (read(&credentials, false)?, read(&config, true)?);
        let mut known: Vec<String> = of_credentials.keys().chain(of_config.keys()).cloned().collect();
        let (keys, settings) = (of_credentials.remove(name), of_config.remove(name));
        if keys.is_none() && settings.is_none() {
            if chosen.is_none() {
                return Ok(None);
            }
            known.sort_unstable();
            known.dedup();
            let hint = match known.is_empty() {
                true => "there are no profiles in ~/.aws/credentials and ~/.aws/config".to_owned(),
                false => format!("set AWS_PROFILE to one of {}", known.join(", ")),
            };
            return Err(Error::config(format!("there is no profile `{name}`")).hint(hint));
        }
        let file = if keys.is_some() { credentials } else { config };
        // The credentials file wins, as in the SDKs.
        let mut values = settings.unwrap_or_default();
        values.extend(keys.unwrap_or_default());
        let name = name.to_owned();
        Ok(Some(Self { name, file: file.unwrap_or_default(), values }))
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// As messages call it.
    pub(super) fn describe(&self) -> String {
        format!("profile `{}` of {}", self.name, self.file.display())
    }
}

fn expand(path: &str, home: Option<&str>) -> PathBuf {
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => Path::new(home).join(rest),
        _ => PathBuf::from(path),
    }
}

/// A file that does not exist holds nothing.
fn read(file: &Path, config: bool) -> Result<BTreeMap<String, Section>> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(parse(&bytes, config)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(e) => {
            let kind = match e.kind() {
                std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
                _ => ErrorKind::Io,
            };
            Err(Error::new(kind, "a file of AWS profiles cannot be read")
                .at_object(file.display().to_string())
                .with_source(e))
        }
    }
}

/// What makes no sense is passed over, as the SDKs do.
pub(super) fn parse(bytes: &[u8], config: bool) -> BTreeMap<String, Section> {
    let text = String::from_utf8_lossy(bytes);
    let mut sections = BTreeMap::<String, Section>::new();
    let mut current: Option<String> = None;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = trimmed.strip_prefix('[') {
            let title = rest.split(']').next().unwrap_or_default().trim();
            let name = match title.split_once(char::is_whitespace) {
                Some(("profile", name)) if config => Some(name.trim().trim_matches(['"', '\''])),
                // `[sso-session x]`, `[services x]`.
                Some(_) if config => None,
                _ if config => (title == "default").then_some(title),
                _ => Some(title),
            };
            current = name.map(str::to_owned);
            if let Some(name) = &current {
                sections.entry(name.clone()).or_default();
            }
            continue;
        }
        let indented = line.starts_with([' ', '\t']);
        if let (Some(section), Some((key, value)), false) = (&current, trimmed.split_once('='), indented) {
            // A comment after a value begins with a space, so that keys may hold `#`.
            let value = value.split(" #").next().unwrap_or_default().split(" ;").next().unwrap_or_default();
            let values = sections.entry(section.clone()).or_default();
            values.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    sections
}
