//! `infeed run --live`: the run on the whole terminal.
//!
//! A thread asks the stream's monitor four times a second and draws; the trainer's loop does not know of it. While the
//! view is up, words for stdout and stderr are held: some of them are shown, warnings are printed when it is gone.

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

/// Between two pictures. Eyes want no more, and it stays below a thousandth of a core.
const EVERY: Duration = Duration::from_millis(250);
/// Between two looks for keys.
const KEYS: Duration = Duration::from_millis(50);

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
pub(crate) struct LiveInputs {
    pub about: About,
    pub monitor: Monitor,
    pub process: LatestUsage,
    pub gpu: Option<LatestGpu>,
}

impl Live {
    /// Takes the terminal. `quit` is told when somebody wants the run to end.
    pub(crate) fn start(inputs: LiveInputs, quit: Keys) -> io::Result<Self> {
        restore_on_panic();
        enter()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || {
            if let Err(error) = show(inputs, &stopped, &quit) {
                leave();
                console::labelled(Label::Warning, &format_args!("the live view ended: {error}; the run goes on"));
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

fn show(inputs: LiveInputs, stop: &AtomicBool, quit: &Keys) -> io::Result<()> {
    // The other screen is empty. Clearing it would ask where the cursor is, and not every terminal answers.
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    let LiveInputs { about, monitor, process, gpu } = inputs;
    let mut history = History::new(about);
    let mut shown = Shown::default();
    let mut keys = true;
    // Down: somebody panicked, and the words of it are on the screen now.
    while !stop.load(Ordering::Acquire) && console::has_view() {
        let began = Instant::now();
        let gpu = gpu.as_ref().and_then(LatestGpu::now);
        let view = history.look(began, &monitor.report(), &process.now(), gpu, console::held_lines());
        terminal.draw(|frame| screen::draw(frame, &view, shown))?;
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
    console::begin_view();
    execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide).inspect_err(|_| leave())
}

/// Gives the terminal back, and prints what was held. Does nothing the second time.
fn leave() {
    if !console::end_view() {
        return;
    }
    // Nothing can be done about a terminal that is gone.
    let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
    console::print_held();
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
    fn a_panic_gives_the_terminal_back_before_its_words() {
        restore_on_panic();
        console::begin_view();
        let panicked = thread::spawn(|| panic!("told on the usual screen: a test of it")).join();
        assert!(panicked.is_err() && !console::has_view());
        leave();
    }
}
