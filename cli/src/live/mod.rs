//! `infeed run --live`: a full-screen view of the run.
//!
//! A thread reads the stream's monitor four times a second and draws, independent of the trainer's loop. While the view
//! is shown, lines for stdout and stderr are held. The view shows some of them; warnings are printed after it.

mod screen;
mod view;

use std::{
    io::{self, IsTerminal},
    panic,
    sync::{
        Arc, Once,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use infeed::loader::Monitor;
use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor,
        event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
        execute, terminal,
    },
};

use crate::{
    console::{self, Label},
    gpu::LatestGpu,
    signals::{Keys, Signal},
    usage::LatestUsage,
};
use screen::Shown;
pub(crate) use view::About;
use view::History;

/// Time between two draws. This is often enough for people, and takes less than a thousandth of a core.
const EVERY: Duration = Duration::from_millis(250);
/// Time between two checks for keys.
const KEYS: Duration = Duration::from_millis(50);

/// Whether there is a terminal to draw on; if not, why.
pub(crate) fn possible() -> Result<(), &'static str> {
    if !io::stdout().is_terminal() {
        return Err("stdout is not a terminal");
    }
    match std::env::var_os("TERM") {
        None => Err("TERM is not set"),
        Some(term) if term == "dumb" || term.is_empty() => Err("this terminal cannot position text"),
        Some(_) => Ok(()),
    }
}

/// The view while it is shown. Dropping it restores the terminal and prints held lines.
#[derive(Debug)]
pub(crate) struct Live {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The inputs of the view.
#[derive(Debug)]
pub(crate) struct LiveInputs {
    pub about: About,
    pub monitor: Monitor,
    pub process: LatestUsage,
    pub gpu: Option<LatestGpu>,
}

impl Live {
    /// Takes over the terminal. `quit` gets a signal when the user ends the run.
    pub(crate) fn start(inputs: LiveInputs, quit: Keys) -> io::Result<Self> {
        restore_on_panic();
        enter()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || {
            if let Err(error) = show(inputs, &stopped, &quit) {
                leave();
                console::labelled(Label::Warning, &format_args!("the live view ended: {error}; the run continues"));
            }
        };
        let thread = thread::Builder::new().name("infeed-live".into()).spawn(body);
        // Without the thread, nothing would restore the terminal.
        let thread = thread.inspect_err(|_| leave())?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread checks `stop` every 50 ms. A panic has printed its message.
        self.thread.take().map(JoinHandle::join);
        leave();
    }
}

fn show(inputs: LiveInputs, stop: &AtomicBool, quit: &Keys) -> io::Result<()> {
    // The alternate screen is empty. Clearing it would query the cursor position, which not every terminal answers.
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    let LiveInputs { about, monitor, process, gpu } = inputs;
    let mut history = History::new(about);
    let mut shown = Shown::default();
    let mut keys = true;
    // `has_view` is false after a panic, whose message is on the screen.
    while !stop.load(Ordering::Acquire) && console::has_view() {
        let began = Instant::now();
        let gpu = gpu.as_ref().and_then(LatestGpu::now);
        let view = history.look(began, &monitor.report(), &process.now(), gpu, console::held_lines());
        terminal.draw(|frame| screen::draw(frame, &view, shown))?;
        while began.elapsed() < EVERY && !stop.load(Ordering::Acquire) {
            // The view works without a keyboard.
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
                        KeyCode::Char('?') => {
                            shown.toggle_help();
                            break;
                        }
                        KeyCode::Esc if shown.help => {
                            shown.toggle_help();
                            break;
                        }
                        KeyCode::Char('f' | 'F') => {
                            shown.toggle_fold(terminal.size()?.width);
                            break;
                        }
                        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Signal::Quit,
                        // In raw mode, the terminal sends no signal.
                        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Signal::Interrupt,
                        _ => continue,
                    };
                    quit.press(signal);
                }
                // Draw again at once.
                Event::Resize(..) => break,
                _ => {}
            }
        }
    }
    Ok(())
}

fn enter() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    console::begin_view();
    execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide).inspect_err(|_| leave())
}

/// Restores the terminal and prints held lines. A second call does nothing.
fn leave() {
    if !console::end_view() {
        return;
    }
    // Errors are ignored: the terminal may be gone.
    let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
    console::print_held();
}

/// Restores the terminal before a panic prints its message, so that the message stays visible.
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
    fn a_panic_gives_the_terminal_back_before_its_words() {
        restore_on_panic();
        console::begin_view();
        let panicked = thread::spawn(|| panic!("told on the usual screen: a test of it")).join();
        assert!(panicked.is_err() && !console::has_view());
        leave();
    }
}
