//! Where words go: people's tables to stdout, unless JSON goes there; warnings and bars to stderr; files in one piece.

use std::{
    ffi::OsString,
    fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    str::FromStr,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::{
    console::{self, Label, to_stderr},
    failure::Failure,
    width,
};

/// The words for people, with a progress bar below them on a terminal.
#[derive(Debug)]
pub(crate) struct Out {
    to_stderr: bool,
    quiet: bool,
    silent: bool,
    bar: ProgressBar,
}

impl Out {
    /// Words go to stderr where JSON takes stdout.
    pub(crate) fn new(json: Option<&JsonTarget>) -> Self {
        let to_stderr = matches!(json, Some(JsonTarget::Stdout));
        if to_stderr {
            width::words_go_to_stderr();
        }
        Self { to_stderr, quiet: false, silent: false, bar: ProgressBar::hidden() }
    }

    /// Keeps the lines to itself; warnings and bars are shown.
    pub(crate) fn quiet() -> Self {
        Self { quiet: true, ..Self::new(None) }
    }

    /// Keeps warnings and bars to itself, too.
    pub(crate) fn silent() -> Self {
        Self { silent: true, ..Self::quiet() }
    }

    /// Starts a bar of `len` steps; it draws on a terminal only.
    pub(crate) fn start_bar(&mut self, len: u64, template: &str) {
        self.bar.finish_and_clear();
        // The view shows how far it is.
        if self.silent || console::has_view() || console::is_quiet() {
            return;
        }
        let style = ProgressStyle::with_template(template).expect("templates are literals");
        self.bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr()).with_style(style);
    }

    /// The running bar (a hidden one when there is none).
    pub(crate) const fn bar(&self) -> &ProgressBar {
        &self.bar
    }

    /// Removes the bar.
    pub(crate) fn end_bar(&self) {
        self.bar.finish_and_clear();
    }

    /// Writes a line of how far the work is, which `--quiet` leaves out.
    pub(crate) fn progress(&self, line: impl fmt::Display) -> Result<(), Failure> {
        if console::is_quiet() { Ok(()) } else { self.words(line) }
    }

    /// Writes a sentence, which a terminal shows broken between words.
    pub(crate) fn words(&self, words: impl fmt::Display) -> Result<(), Failure> {
        self.line(width::fit(&words.to_string(), 2))
    }

    /// Writes one line, or several. Where JSON takes stdout, `--quiet` leaves them out.
    pub(crate) fn line(&self, line: impl fmt::Display) -> Result<(), Failure> {
        if self.quiet || (self.to_stderr && console::is_quiet()) {
            return Ok(());
        }
        if console::hold_line(&line) {
            return Ok(());
        }
        self.bar.suspend(|| {
            if self.to_stderr {
                to_stderr(format_args!("{line}"));
                return Ok(());
            }
            console::to_stdout(&line).map_err(Failure::from)
        })
    }

    /// Writes a warning to stderr; it should tell the next thing to try.
    pub(crate) fn warn(&self, warning: impl fmt::Display) {
        if !self.silent && !console::hold_warning(&warning) {
            self.bar.suspend(|| console::labelled(Label::Warning, &warning));
        }
    }
}

/// Where `--json` goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JsonTarget {
    /// `-`
    Stdout,
    /// A path.
    File(PathBuf),
}

impl FromStr for JsonTarget {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "-" { Self::Stdout } else { Self::File(text.into()) })
    }
}

impl JsonTarget {
    /// Fails now when it would fail after a long run.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self {
            Self::Stdout => Ok(()),
            Self::File(path) => check_writable(path),
        }
    }

    /// Writes one document on one line.
    pub(crate) fn write(&self, value: &impl Serialize) -> Result<(), Failure> {
        let mut text =
            serde_json::to_vec(value).map_err(|error| Failure::Failed(format!("cannot write JSON: {error}")))?;
        text.push(b'\n');
        match self {
            Self::Stdout => Ok(io::stdout().write_all(&text)?),
            Self::File(path) => replace(path, &text),
        }
    }
}

/// Whether `replace` will work later.
pub(crate) fn check_writable(path: &Path) -> Result<(), Failure> {
    let target = if is_plain(path) { aside(path) } else { path.to_path_buf() };
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&target)
        .map_err(|e| Failure::file("cannot write", path, e))?;
    if is_plain(path) {
        // A leftover would be an odd sight, but does no harm.
        let _ = fs::remove_file(target);
    }
    Ok(())
}

/// Writes aside, has the disk take it, then renames, and has the disk take the new name: neither a reader nor a machine that
/// loses its power meets half a file or none. A rename alone may reach the disk before the bytes do.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let written = if is_plain(path) {
        let aside = aside(path);
        let written = fs::File::create(&aside).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        written.and_then(|()| fs::rename(&aside, path)).and_then(|()| sync_folder(path))
    } else {
        fs::write(path, bytes)
    };
    written.map_err(|error| Failure::file("cannot write", path, error))
}

/// Has the disk take the names in a file's folder.
fn sync_folder(path: &Path) -> io::Result<()> {
    // A bare name lies here.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Folders are files on Unix alone. Some network file systems refuse: the name is as safe as they make it.
    if cfg!(unix) {
        let refused = |error: &io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
            )
        };
        fs::File::open(folder)
            .and_then(|folder| folder.sync_all())
            .or_else(|error| if refused(&error) { Ok(()) } else { Err(error) })?;
    }
    Ok(())
}

/// Devices and pipes (`/dev/null`, `/dev/stdout`) are written in place.
fn is_plain(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |meta| meta.is_file())
}

fn aside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".part");
    name.into()
}
