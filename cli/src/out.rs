//! Output: tables to stdout, unless JSON goes there; warnings and progress bars to stderr; files, replaced atomically.

use std::{
    ffi::OsString,
    fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    str::FromStr,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;

use crate::{
    console::{self, Label, to_stderr},
    failure::Failure,
    units, width,
};

/// The kind of a progress bar. All show the work, the progress, the rate and the remaining time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarOf {
    /// Batches of a run, with this many samples each. The message shows the epoch.
    Batches(u64),
    /// Other things, with their name in the plural.
    Things(&'static str),
    /// Bytes.
    Bytes,
}

impl BarOf {
    fn style(self) -> ProgressStyle {
        let template = match self {
            Self::Batches(_) => "{msg} {wide_bar} {pos}/{len}, {samples}, {eta} left".to_owned(),
            Self::Things(things) => format!("{{msg}} {{wide_bar}} {{pos}}/{{len}} {things}, {{per}}, {{eta}} left"),
            Self::Bytes => "{msg} {wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left".to_owned(),
        };
        let style = ProgressStyle::with_template(&template).expect("templates are literals");
        let style = style.with_key("per", |state: &ProgressState, text: &mut dyn fmt::Write| {
            let rate = state.per_sec();
            // Slow work is shown per minute.
            let _ = match rate {
                rate if rate > 0.0 && rate < 0.5 => write!(text, "{}/min", units::number(60.0 * rate)),
                rate => write!(text, "{}/s", units::number(rate)),
            };
        });
        let Self::Batches(samples) = self else { return style };
        style.with_key("samples", move |state: &ProgressState, text: &mut dyn fmt::Write| {
            let _ = text.write_str(&units::rate(state.per_sec() * samples as f64));
        })
    }
}

/// The output for people, with a progress bar below it on a terminal.
#[derive(Debug)]
pub(crate) struct Out {
    to_stderr: bool,
    quiet: bool,
    silent: bool,
    bar: ProgressBar,
}

impl Out {
    /// Output goes to stderr if JSON goes to stdout.
    pub(crate) fn new(json: Option<&JsonTarget>) -> Self {
        let to_stderr = matches!(json, Some(JsonTarget::Stdout));
        if to_stderr {
            width::words_go_to_stderr();
        }
        Self { to_stderr, quiet: false, silent: false, bar: ProgressBar::hidden() }
    }

    /// Shows warnings and bars, but no lines.
    pub(crate) fn quiet() -> Self {
        Self { quiet: true, ..Self::new(None) }
    }

    /// Shows nothing.
    pub(crate) fn silent() -> Self {
        Self { silent: true, ..Self::quiet() }
    }

    /// Starts a bar of `len` steps. It is drawn only on a terminal.
    pub(crate) fn start_bar(&mut self, len: u64, of: BarOf) {
        self.bar.finish_and_clear();
        // The live view shows the progress.
        if self.silent || console::has_view() || console::is_quiet() {
            return;
        }
        self.bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr()).with_style(of.style());
    }

    /// The current bar (hidden if there is none).
    pub(crate) const fn bar(&self) -> &ProgressBar {
        &self.bar
    }

    /// Removes the bar.
    pub(crate) fn end_bar(&self) {
        self.bar.finish_and_clear();
    }

    /// Writes a line about progress, which `--quiet` leaves out.
    pub(crate) fn progress(&self, line: impl fmt::Display) -> Result<(), Failure> {
        if console::is_quiet() { Ok(()) } else { self.words(line) }
    }

    /// Writes a sentence, which is wrapped on a terminal.
    pub(crate) fn words(&self, words: impl fmt::Display) -> Result<(), Failure> {
        self.line(width::fit(&words.to_string(), 2))
    }

    /// Writes one or more lines. If JSON goes to stdout, `--quiet` leaves them out.
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

    /// Writes a warning to stderr. It should name the next thing to try.
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
    /// Fails now if writing would fail after a long run.
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
        // A leftover file does no harm.
        let _ = fs::remove_file(target);
    }
    Ok(())
}

/// Writes to a temporary file, syncs it, renames it, and syncs the folder. So neither a reader nor a power loss sees an
/// incomplete or missing file. Without the syncs, the rename may reach the disk before the bytes.
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

/// Syncs the names in a file's folder.
fn sync_folder(path: &Path) -> io::Result<()> {
    // A bare name is in the current folder.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Only Unix can sync folders, and some network file systems refuse.
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal of so many columns that keeps what is written.
    #[derive(Clone, Debug)]
    struct Paper(u16, Arc<Mutex<String>>);

    impl TermLike for Paper {
        fn width(&self) -> u16 {
            self.0
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.1.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            self.1.lock().unwrap().clear();
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn drawn(of: BarOf, message: &str, width: u16) -> String {
        let paper = Paper(width, Arc::default());
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(paper.clone()), 255);
        let bar = ProgressBar::with_draw_target(Some(391), target).with_style(of.style());
        bar.set_message(message.to_owned());
        bar.set_position(120);
        bar.force_draw();
        let line = paper.1.lock().unwrap().clone();
        bar.abandon();
        line
    }

    #[test]
    fn a_bar_says_what_how_far_how_fast_and_how_much_longer() {
        for width in [60, 80, 160] {
            let line = drawn(BarOf::Batches(64), "epoch 1 of 3", width);
            for words in ["epoch 1 of 3 ", "█", " 120/391, ", " samples/s, ", " left"] {
                assert!(line.contains(words), "no {words:?} in {width} columns: {line:?}");
            }
        }
        for (of, words) in [
            (BarOf::Things("files"), ["120/391 files, ", "/s, ", " left"]),
            (BarOf::Bytes, ["120 B/391 B, ", "/s, ", " left"]),
        ] {
            let line = drawn(of, "", 80);
            assert!(words.iter().all(|words| line.contains(words)), "{line:?}");
        }
    }
}
