//! The files of the AWS command line: `~/.aws/credentials` and `~/.aws/config`.
//!
//! Read as in the SDKs: sections, `key = value`, comments on separate lines. A line indented below `key =` belongs to
//! that key: `endpoint_url` below `sts =` is kept as `sts.endpoint_url`. In `config`, the title of a profile is
//! `[profile NAME]`, except for `[default]`; profiles refer to `[sso-session NAME]` and `[services NAME]`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use infeed_core::error::{Error, ErrorKind, Result};

use super::Vars;

pub(super) type Section = BTreeMap<String, String>;

/// The content of one file.
#[derive(Default)]
pub(super) struct Sections {
    pub(super) profiles: BTreeMap<String, Section>,
    sso_sessions: BTreeMap<String, Section>,
    services: BTreeMap<String, Section>,
}

struct Files {
    credentials: PathBuf,
    config: PathBuf,
    of_credentials: Sections,
    of_config: Sections,
}

/// One profile, merged from both files.
#[derive(Clone)]
pub(super) struct Profile {
    pub(super) name: String,
    /// The file with its keys, for messages.
    pub(super) file: PathBuf,
    values: Section,
    files: Arc<Files>,
}

impl Profile {
    /// `None` if no profile was chosen and there is no default profile.
    ///
    /// # Errors
    /// `Config` if `AWS_PROFILE` names a profile that does not exist.
    pub(super) fn find(vars: &Vars) -> Result<Option<Self>> {
        let chosen = vars.first(&["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]);
        let name = chosen.unwrap_or("default");
        let file = |variable, base| {
            let home = home(vars);
            let default = || home.map(|home| Path::new(home).join(".aws").join(base));
            vars.get(variable).map(|path| expand(path, home)).or_else(default).unwrap_or_default()
        };
        let (credentials, config) =
            (file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), file("AWS_CONFIG_FILE", "config"));
        let (of_credentials, of_config) = (read(&credentials, false)?, read(&config, true)?);
        let files = Arc::new(Files { credentials, config, of_credentials, of_config });
        let found = Self::of(&files, name);
        match chosen {
            Some(name) if found.is_none() => {
                let known = files.names();
                let hint = match known.is_empty() {
                    true => "there are no profiles in ~/.aws/credentials and ~/.aws/config".to_owned(),
                    false => format!("set AWS_PROFILE to one of {}", known.join(", ")),
                };
                Err(Error::config(format!("there is no profile `{name}`")).with_hint(hint))
            }
            _ => found.map(Self::with_services).transpose(),
        }
    }

    fn with_services(self) -> Result<Self> {
        match self.get("services") {
            Some(services) if !self.files.of_config.services.contains_key(services) => {
                Err(Error::config(format!("there is no section `services {services}`, which a profile names"))
                    .at_object(self.file.display().to_string())
                    .with_hint("add it to ~/.aws/config, or remove `services` from the profile"))
            }
            _ => Ok(self),
        }
    }

    fn of(files: &Arc<Files>, name: &str) -> Option<Self> {
        let (keys, settings) = (files.of_credentials.profiles.get(name), files.of_config.profiles.get(name));
        let file = if keys.is_some() { &files.credentials } else { &files.config };
        // The credentials file wins, as in the SDKs.
        let mut values = settings.or(keys)?.clone();
        values.extend(keys.cloned().unwrap_or_default());
        Some(Self { name: name.to_owned(), file: file.clone(), values, files: Arc::clone(files) })
    }

    /// Another profile of the same files.
    pub(super) fn other(&self, name: &str) -> Option<Self> {
        Self::of(&self.files, name)
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        filled(&self.values, key)
    }

    /// The section `[sso-session NAME]`.
    pub(super) fn sso_session(&self, name: &str) -> Option<&Section> {
        self.files.of_config.sso_sessions.get(name)
    }

    /// The endpoint of one service, such as `sts`, in the section `[services NAME]` that this profile names.
    pub(super) fn endpoint_of(&self, service: &str) -> Option<&str> {
        filled(self.files.of_config.services.get(self.get("services")?)?, &format!("{service}.endpoint_url"))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.iter().filter(|(_, value)| !value.is_empty()).map(|(key, _)| key.as_str())
    }

    /// Its description in messages.
    pub(super) fn describe(&self) -> String {
        format!("profile `{}` of {}", self.name, self.file.display())
    }
}

impl Files {
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> =
            self.of_credentials.profiles.keys().chain(self.of_config.profiles.keys()).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// The value of a key, if it is not empty.
pub(super) fn filled<'a>(section: &'a Section, key: &str) -> Option<&'a str> {
    section.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

pub(super) fn home(vars: &Vars) -> Option<&str> {
    vars.first(&["HOME", "USERPROFILE"])
}

pub(super) fn expand(path: &str, home: Option<&str>) -> PathBuf {
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => Path::new(home).join(rest),
        _ => PathBuf::from(path),
    }
}

/// A file that does not exist, or whose path is unknown, counts as empty.
fn read(file: &Path, config: bool) -> Result<Sections> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(parse(&bytes, config)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Sections::default()),
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

/// Invalid lines are ignored, as in the SDKs.
pub(super) fn parse(bytes: &[u8], config: bool) -> Sections {
    let text = String::from_utf8_lossy(bytes);
    let mut sections = Sections::default();
    let mut current: Option<&mut Section> = None;
    // The key above, its indentation, and whether it may be followed by indented lines of its own.
    let mut above: Option<(String, usize, bool)> = None;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = trimmed.strip_prefix('[') {
            let title = rest.split(']').next().unwrap_or_default().trim();
            let plain = |name: &str| name.trim().trim_matches(['"', '\'']).to_owned();
            let Sections { profiles, sso_sessions, services } = &mut sections;
            let found = match title.split_once(char::is_whitespace) {
                _ if !config => Some((profiles, title.to_owned())),
                None => (title == "default").then(|| (profiles, title.to_owned())),
                Some(("profile", name)) => Some((profiles, plain(name))),
                Some(("sso-session", name)) => Some((sso_sessions, plain(name))),
                Some(("services", name)) => Some((services, plain(name))),
                Some(_) => None,
            };
            current = found.map(|(all, name)| all.entry(name).or_default());
            above = None;
            continue;
        }
        let (Some(section), Some((key, value))) = (&mut current, trimmed.split_once('=')) else { continue };
        // A comment after a value must begin with a space, so that keys may contain `#`.
        let value = value.split(" #").next().unwrap_or_default().split(" ;").next().unwrap_or_default().trim();
        let key = key.trim().to_ascii_lowercase();
        let indent = line.len() - line.trim_start().len();
        match &above {
            Some((parent, at, true)) if indent > *at => _ = section.insert(format!("{parent}.{key}"), value.to_owned()),
            // The continuation of a multi-line value; no key that is used here has one.
            Some((_, at, false)) if indent > *at => {}
            _ => {
                section.insert(key.clone(), value.to_owned());
                above = Some((key, indent, value.is_empty()));
            }
        }
    }
    sections
}
