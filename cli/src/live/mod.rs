//! `infeed run --live`: the run on the whole terminal.
//!
//! A thread asks the stream's monitor four times a second and draws; the trainer's loop does not know of it. While the
//! view is up, words for stdout and stderr are held: some of them are shown, warnings are printed when it is gone.

mod screen;
mod view;

use std::{
    collections::VecDeque,
    io::{self, IsTerminal, Write},
    panic,
    sync::{
        Arc, Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use infeed::Monitor;
use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor,
        event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
        execute, terminal,
    },
};
use tracing_subscriber::fmt::MakeWriter;

use crate::{
    gpu::GpuEye,
    out::to_stderr,
    sampler::Eye,
    signals::{Keys, Signal},
};
pub(crate) use view::About;
use view::History;

/// Between two pictures. Eyes want no more, and it stays below a thousandth of a core.
const EVERY: Duration = Duration::from_millis(250);
/// Between two looks for keys.
const KEYS: Duration = Duration::from_millis(50);

/// Whether the terminal is ours.
static UP: AtomicBool = AtomicBool::new(false);
/// What was to be written meanwhile.
static HELD: Mutex<Held> = Mutex::new(Held { lines: VecDeque::new(), warnings: Vec::new(), more: 0 });

/// Lines that wait.
#[derive(Debug)]
struct Held {
    /// The last ones, to be shown.
    lines: VecDeque<String>,
    /// The first ones of stderr, to be printed afterwards.
    warnings: Vec<String>,
    /// Further ones.
    more: u64,
}

impl Held {
    /// Lines that are shown, and warnings that are kept, at most.
    const SHOWN: usize = 100;
    const KEPT: usize = 1000;

    fn show(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if self.lines.len() == Self::SHOWN {
                self.lines.pop_front();
            }
            self.lines.push_back(plain(line));
        }
    }

    fn warn(&mut self, text: &str) {
        self.show(text);
        for line in text.lines() {
            match self.warnings.len() < Self::KEPT {
                true => self.warnings.push(line.to_owned()),
                false => self.more += 1,
            }
        }
    }
}

fn held() -> MutexGuard<'static, Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Text without colours and other orders to a terminal.
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            // ESC [ … letter
            '\u{1b}' => drop(chars.by_ref().find(char::is_ascii_alphabetic)),
            '\t' => out.push(' '),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

/// Whether the terminal is ours.
pub(crate) fn is_up() -> bool {
    UP.load(Ordering::Acquire)
}

/// Takes a line for stdout, if the view is up.
pub(crate) fn take_line(line: &dyn std::fmt::Display) -> bool {
    let up = is_up();
    if up {
        held().show(&line.to_string());
    }
    up
}

/// Takes a line for stderr, if the view is up.
pub(crate) fn take_warning(line: &dyn std::fmt::Display) -> bool {
    let up = is_up();
    if up {
        held().warn(&line.to_string());
    }
    up
}

/// stderr for log lines; while the view is up they wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLines;

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // One call for each event: tracing_subscriber formats it into a buffer first.
        match is_up() {
            true => held().warn(&String::from_utf8_lossy(bytes)),
            false => io::stderr().write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

/// Whether there is a terminal to draw on; if not, why.
pub(crate) fn possible() -> Result<(), &'static str> {
    if !io::stdout().is_terminal() {
        return Err("stdout is not a terminal");
    }
    match std::env::var_os("TERM") {
        None => Err("TERM is not set"),
        Some(term) if term == "dumb" || term.is_empty() => Err("this terminal can't place text"),
        Some(_) => Ok(()),
    }
}

/// The view while it is up. Dropping it gives the terminal back, and prints what was held.
#[derive(Debug)]
pub(crate) struct Live {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the view looks at.
#[derive(Debug)]
pub(crate) struct Sights {
    pub about: About,
    pub monitor: Monitor,
    pub process: Eye,
    pub gpu: Option<GpuEye>,
}

impl Live {
    /// Takes the terminal. `quit` is told when somebody wants the run to end.
    pub(crate) fn start(sights: Sights, quit: Keys) -> io::Result<Self> {
        restore_on_panic();
        enter()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || {
            if let Err(error) = show(sights, &stopped, &quit) {
                leave();
                to_stderr(format_args!("warning: the live view ended: {error}; the run goes on"));
            }
        };
        let thread = thread::Builder::new().name("infeed-live".into()).spawn(body);
        // Without its thread nothing would give the terminal back.
        let thread = thread.inspect_err(|_| leave())?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // It looks every 50 ms. One that panicked has said so.
        self.thread.take().map(JoinHandle::join);
        leave();
    }
}

fn show(sights: Sights, stop: &AtomicBool, quit: &Keys) -> io::Result<()> {
    // The other screen is empty. Clearing it would ask where the cursor is, and not every terminal answers.
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    let Sights { about, monitor, process, gpu } = sights;
    let mut history = History::new(about);
    let mut keys = true;
    // Down: somebody panicked, and the words of it are on the screen now.
    while !stop.load(Ordering::Acquire) && is_up() {
        let began = Instant::now();
        let (shown, lines) = (gpu.as_ref().and_then(GpuEye::now), held().lines.iter().cloned().collect());
        let view = history.look(&monitor.report(), &process.now(), shown, lines);
        terminal.draw(|frame| screen::draw(frame, &view))?;
        while began.elapsed() < EVERY && !stop.load(Ordering::Acquire) {
            // No keyboard is no reason to end.
            keys = keys && event::poll(KEYS).is_ok();
            if !keys {
                thread::sleep(KEYS);
                continue;
            }
            if !event::poll(Duration::ZERO)? {
                continue;
            }
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let signal = match key.code {
                        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Signal::Quit,
                        // The terminal sends no signal while it is ours.
                        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Signal::Interrupt,
                        _ => continue,
                    };
                    quit.press(signal);
                }
                // Drawn anew at once.
                Event::Resize(..) => break,
                _ => {}
            }
        }
    }
    Ok(())
}

fn enter() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    UP.store(true, Ordering::Release);
    execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide).inspect_err(|_| leave())
}

/// Gives the terminal back, and prints what was held. Does nothing the second time.
fn leave() {
    if !UP.swap(false, Ordering::AcqRel) {
        return;
    }
    // Nothing can be done about a terminal that is gone.
    let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
    let (warnings, more) = {
        let mut held = held();
        held.lines.clear();
        (std::mem::take(&mut held.warnings), std::mem::take(&mut held.more))
    };
    warnings.iter().for_each(|line| to_stderr(format_args!("{line}")));
    if more > 0 {
        to_stderr(format_args!("… and {more} more such lines"));
    }
}

/// The words of a panic belong on a screen where they stay.
fn restore_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            leave();
            before(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_to_a_terminal_are_left_out() {
        assert_eq!(plain("\u{1b}[33m WARN\u{1b}[0m a\tb\r\u{7}"), " WARN a b");
        assert_eq!(plain("\u{1b}["), "");
    }

    #[test]
    fn a_panic_gives_the_terminal_back_before_its_words() {
        restore_on_panic();
        UP.store(true, Ordering::Release);
        let panicked = thread::spawn(|| panic!("told on the usual screen: a test of it")).join();
        assert!(panicked.is_err() && !is_up());
        leave();
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut held = Held { lines: VecDeque::new(), warnings: Vec::new(), more: 0 };
        (0..5000).for_each(|n| held.warn(&format!("line {n}\n")));
        assert_eq!((held.lines.len(), held.warnings.len(), held.more), (Held::SHOWN, Held::KEPT, 4000));
        assert_eq!((held.lines[99].as_str(), held.warnings[0].as_str()), ("line 4999", "line 0"));
        held.show("a\n\nb\n");
        assert_eq!((held.lines[98].as_str(), held.lines[99].as_str()), ("a", "b"));
    }
}
