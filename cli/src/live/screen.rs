//! Draws panels of lines in one or two columns, the most important first. If there is no room for all lines of a panel,
//! it folds to one line with its figures, so every panel stays visible. Lines that are too long end in `…`.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::view::{Load, QueueBar, Rate, StageBar, View};
use crate::units;

/// From this width on, there are two columns.
const WIDE: u16 = 110;
/// Below this width, panels are folded unless the user unfolds them.
const NARROW: u16 = 72;
const SOFT: Style = Style::new().fg(Color::DarkGray);
const GOOD: Style = Style::new().fg(Color::Green);
const MUCH: Style = Style::new().fg(Color::Yellow);
const FULL: Style = Style::new().fg(Color::Red);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
/// Widths of titles, and of names below them.
const TITLE: usize = 10;
const NAME: usize = 10;

/// What the user chose to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// Help instead of the panels.
    pub(super) help: bool,
    /// Whether panels are folded; `None`: by the width of the window.
    pub(super) folded: Option<bool>,
}

impl Shown {
    pub(super) fn toggle_help(&mut self) {
        self.help = !self.help;
    }

    /// `width`: the width of the window, which decides until the user does.
    pub(super) fn toggle_fold(&mut self, width: u16) {
        self.folded = Some(!self.folds(width));
    }

    fn folds(self, width: u16) -> bool {
        self.folded.unwrap_or(width < NARROW)
    }
}

/// Lines with a name, and one line with the same in short.
struct Panel {
    lines: Vec<Line<'static>>,
    folded: Line<'static>,
    /// Whether to show some of the lines if not all fit.
    list: bool,
}

impl Panel {
    /// `short`: the text after the title of a folded panel.
    fn new(name: &'static str, lines: Vec<Vec<Span<'static>>>, short: Vec<Span<'static>>) -> Self {
        let title = |words: String| Span::styled(format!("{words:<TITLE$}"), BOLD);
        let first = |n: usize| if n == 0 { title(name.to_owned()) } else { Span::raw(" ".repeat(TITLE)) };
        let lines: Vec<Line<'static>> =
            lines.into_iter().enumerate().map(|(n, spans)| [first(n)].into_iter().chain(spans).collect()).collect();
        let folded = match &lines[..] {
            [one] => one.clone(),
            _ => [title(format!("{name} ▸"))].into_iter().chain(short).collect(),
        };
        Self { lines, folded, list: false }
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, view: &View, shown: Shown) {
    let area = frame.area();
    if area.width == 0 || area.height == 0 {
        return;
    }
    let head: Vec<_> = head(view, area.width).into_iter().map(|line| cut(line, area.width)).collect();
    let [top, below] = Layout::vertical([Constraint::Length(head.len() as u16), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(head), top);
    if shown.help {
        let lines: Vec<_> = help().into_iter().map(|line| cut(line, below.width)).collect();
        frame.render_widget(Paragraph::new(lines), below);
        return;
    }
    let width = if area.width >= WIDE { area.width / 2 - 1 } else { area.width };
    let figures = [rates(view), waits(view, width), stages(view, width), queues(view, width)];
    let words = [machine(view, width), late(view), tuned(view), bad(view), messages(view)];
    let fold = shown.folds(area.width);
    if area.width >= WIDE {
        let [left, _, right] =
            Layout::horizontal([Constraint::Length(width), Constraint::Length(2), Constraint::Min(0)]).areas(below);
        frame.render_widget(Paragraph::new(fit(figures.into(), left, fold)), left);
        frame.render_widget(Paragraph::new(fit(words.into(), right, fold)), right);
    } else {
        let all = figures.into_iter().chain(words).collect();
        frame.render_widget(Paragraph::new(fit(all, below, fold)), below);
    }
}

/// Places panels one below the other. The first ones are unfolded while there is room. If all of them fit, empty lines
/// separate them.
fn fit(panels: Vec<Panel>, area: Rect, fold: bool) -> Vec<Line<'static>> {
    let panels: Vec<Panel> = panels.into_iter().filter(|panel| !panel.lines.is_empty()).collect();
    let height = usize::from(area.height);
    let mut left = height.saturating_sub(panels.len());
    // Lines of each panel, 0 for a folded one.
    let open = panels.iter().map(|panel| {
        let more = panel.lines.len() - 1;
        match more {
            _ if fold && more > 0 => 0,
            more if more <= left || (panel.list && left > 0) => {
                let lines = 1 + more.min(left);
                left -= lines - 1;
                lines
            }
            _ => 0,
        }
    });
    let open: Vec<usize> = open.collect();
    let whole = panels.iter().zip(&open).all(|(panel, lines)| panel.lines.len() == *lines);
    let airy = whole && left >= panels.len();
    let mut all = Vec::new();
    for (panel, lines) in panels.into_iter().zip(open) {
        if airy || (all.is_empty() && left > 0) {
            all.push(Line::default());
        }
        if lines > 0 { all.extend(panel.lines.into_iter().take(lines)) } else { all.push(panel.folded) }
    }
    if all.len() > height {
        all.truncate(height.saturating_sub(1));
        all.push(soft("… more in a taller window").into());
    }
    all.into_iter().map(|line| cut(line, area.width)).collect()
}

/// Cuts a line to `width` columns.
fn cut(line: Line<'static>, width: u16) -> Line<'static> {
    let width = usize::from(width);
    if line.width() <= width {
        return line;
    }
    let mut left = width.saturating_sub(1);
    let mut spans = Vec::new();
    for span in line.spans {
        if span.width() <= left {
            left -= span.width();
            spans.push(span);
            continue;
        }
        let mut text = String::new();
        for c in span.content.chars() {
            let wide = Span::raw(c.to_string()).width();
            if wide > left {
                break;
            }
            left -= wide;
            text.push(c);
        }
        text.push('…');
        spans.push(Span::styled(text, span.style));
        break;
    }
    spans.into()
}

fn soft(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), SOFT)
}

fn raw(text: impl Into<String>) -> Span<'static> {
    Span::raw(text.into())
}

fn count(rate: f64) -> String {
    units::count(rate.round().clamp(0.0, 1e18) as u64)
}

/// `1:02:03`
fn clock(seconds: f64) -> String {
    let seconds = seconds.clamp(0.0, 1e9) as u64;
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if h > 0 { format!("{h}:{m:02}:{s:02}") } else { format!("{m}:{s:02}") }
}

fn head(view: &View, width: u16) -> Vec<Line<'static>> {
    let name = Style::new().add_modifier(Modifier::REVERSED);
    let what = if view.what.is_empty() { String::new() } else { format!(" · {}", view.what) };
    let mut progress = vec![raw(format!("{} · {}", view.place, clock(view.elapsed)))];
    if let Some(left) = view.left {
        progress.push(soft(format!(" · {} left", clock(left))));
    }
    // In front, so that a narrow window shows it.
    let keys = soft(" q ends it  ? help  ");
    let top = vec![Span::styled(" infeed run ", name), keys, raw(format!("{}{what}", view.url))];
    let mut done = bar(view.done, usize::from(width.min(200)), GOOD);
    // Progress is drawn with another character than loads.
    done[0].content = done[0].content.replace('█', "━").into();
    vec![top.into(), progress.into(), done.into()]
}

/// Help: keys and terms, in 60 columns.
fn help() -> Vec<Line<'static>> {
    const KEYS: [(&str, &str); 4] = [
        ("q, Esc", "end the run after this batch, with its summary"),
        ("Ctrl-C", "the same, as an interrupt: exit status 130"),
        ("f", "fold the panels, and unfold them"),
        ("?", "this help, on and off"),
    ];
    const WORDS: [(&str, &str); 9] = [
        ("rate", "the last 2 seconds, and the mean of the run"),
        ("waiting", "the trainer's time without data, and its curve"),
        ("stages", "busy threads, of the threads of the stage;"),
        ("", "starved: no input; blocked: no room for output"),
        ("queues", "ready, of the capacity: batches or bytes"),
        ("late", "batches that the trainer waited for, by cause"),
        ("auto", "settings on auto, and their changes"),
        ("bars", "load: green below 60 %, yellow, and red with !"),
        ("", "from 90 % on (the trainer: red below 60 %)"),
    ];
    let line = |(n, title, (name, words)): (usize, &str, &(&str, &str))| -> Line<'static> {
        let title = if n == 0 { title } else { "" };
        vec![Span::styled(format!("{title:<6}"), BOLD), raw(format!("{name:<8}")), raw(*words)].into()
    };
    let keys = KEYS.iter().enumerate().map(|(n, key)| line((n, "keys", key)));
    let words = WORDS.iter().enumerate().map(|(n, word)| line((n, "words", word)));
    [Line::default()].into_iter().chain(keys).chain([Line::default()]).chain(words).collect()
}

/// A bar of `columns` columns.
fn bar(load: f64, columns: usize, style: Style) -> Vec<Span<'static>> {
    let full = (load.clamp(0.0, 1.0) * columns as f64).round() as usize;
    // A small load still shows one column.
    let full = full.max(usize::from(load > 0.005)).min(columns);
    vec![Span::styled("█".repeat(full), style), soft("─".repeat(columns - full))]
}

/// The colour of a load, and a mark for terminals without colours.
fn level(load: f64) -> (Style, &'static str) {
    match load {
        load if load >= 0.9 => (FULL, "!"),
        load if load >= 0.6 => (MUCH, " "),
        _ => (GOOD, " "),
    }
}

/// The same for a load where much is good: the trainer at work.
fn level_of_good(load: f64) -> (Style, &'static str) {
    match load {
        load if load >= 0.9 => (GOOD, " "),
        load if load >= 0.6 => (MUCH, " "),
        _ => (FULL, "!"),
    }
}

/// Of batches that are ready: one is enough, and none is what the trainer waits for.
fn level_of_ready(fill: f64) -> (Style, &'static str) {
    match fill {
        fill if fill >= 0.3 => (GOOD, " "),
        fill if fill > 0.0 => (MUCH, " "),
        _ => (FULL, "!"),
    }
}

/// ` 90 %!`
fn percent(load: f64, mark: &str) -> String {
    format!(" {:>3.0} %{mark}", 100.0 * load.clamp(0.0, 1.0))
}

/// Columns that [`percent`] takes.
const PERCENT: usize = 7;

/// Columns for a bar beside words of so many.
fn columns(width: u16, words: usize) -> usize {
    usize::from(width).saturating_sub(TITLE + NAME + PERCENT + words).clamp(6, 30)
}

fn rates(view: &View) -> Panel {
    let Rate { now, mean } = view.samples;
    let samples = Span::styled(format!("{} samples/s", count(now)), BOLD);
    let mut lines = vec![vec![samples.clone(), soft(format!("  mean {}", count(mean)))]];
    let mut short = vec![samples];
    // Datasets that lie in memory read nothing.
    if view.bytes.mean > 0.0 {
        let [now, mean] = [view.bytes.now, view.bytes.mean].map(|rate| units::size(rate as u64));
        lines.push(vec![raw(format!("{now}/s read")), soft(format!("  mean {mean}/s"))]);
        short.push(raw(format!(", {now}/s read")));
    }
    Panel::new("rate", lines, short)
}

fn waits(view: &View, width: u16) -> Panel {
    let [p50, p99, max] = view.waits.map(units::time);
    let style = match view.waiting.now {
        share if share > 0.2 => FULL,
        share if share > 0.05 => MUCH,
        _ => GOOD,
    };
    let share = Span::styled(format!("{:.1} % of the time", 100.0 * view.waiting.now), style);
    let mut first = vec![share.clone(), soft(format!("  mean {:.1} %", 100.0 * view.waiting.mean))];
    let mut short = vec![share, raw(format!(", p99 {p99}"))];
    if let Some(now) = view.waits_now.filter(|now| *now >= 0.5) {
        let words = Span::styled(format!("  {} by now", units::time(now)), FULL);
        first.push(words.clone());
        short.push(words);
    }
    let columns = usize::from(width).saturating_sub(TITLE + 1);
    let from = view.curve.len().saturating_sub(columns);
    let curve = view.curve[from..].iter().map(|share| step(*share)).collect::<String>();
    let lines = vec![first, vec![raw(format!("p50 {p50}  p99 {p99}  max {max}"))], vec![Span::styled(curve, style)]];
    Panel::new("waiting", lines, short)
}

/// A column of an eighth to eight eighths; nothing at all is a dot.
fn step(share: f64) -> char {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    match share {
        share if share < 0.001 => '·',
        share => STEPS[((share * 8.0) as usize).min(7)],
    }
}

/// A name, one column of load and its figure: a bar in a folded panel.
fn small(name: &str, load: f64, (style, mark): (Style, &str)) -> [Span<'static>; 3] {
    [
        raw(format!("{name} ")),
        Span::styled(step(load.clamp(0.0, 1.0)).to_string(), style),
        raw(format!("{}  ", percent(load, mark).trim())),
    ]
}

fn stages(view: &View, width: u16) -> Panel {
    let loads = view.stages.iter().map(|stage| {
        let level = if stage.name == "trainer" { level_of_good } else { level };
        (stage, stage.load(), level(stage.load()))
    });
    let loads: Vec<_> = loads.collect();
    let words = |StageBar { busy, starved, blocked, of, .. }: &StageBar, all: bool| {
        let of = format!(" busy {busy:.2} of {of:.2}");
        if all { format!("{of}  starved {starved:.2}  blocked {blocked:.2}") } else { of }
    };
    // As many words as leave room for a bar.
    let longest = |all: bool| loads.iter().map(|(stage, ..)| words(stage, all).len()).max().unwrap_or(0);
    let room = usize::from(width).saturating_sub(TITLE + NAME + PERCENT + 10);
    let (all, none) = (longest(true) <= room, longest(false) > room);
    let columns = columns(width, if none { 0 } else { longest(all) });
    let lines = loads.iter().map(|(stage, load, (style, mark))| {
        let mut spans = vec![raw(format!("{:<NAME$}", stage.name))];
        spans.extend(bar(*load, columns, *style));
        spans.push(Span::styled(percent(*load, mark), *style));
        spans.push(soft(if none { String::new() } else { words(stage, all) }));
        spans
    });
    let lines = lines.collect();
    Panel::new(
        "stages",
        lines,
        loads.iter().flat_map(|(stage, load, level)| small(stage.name, *load, *level)).collect(),
    )
}

fn queues(view: &View, width: u16) -> Panel {
    let words = |queue: &QueueBar| {
        let of = queue.capacity.as_ref().map_or(String::new(), |most| format!(" of {most}"));
        format!(" {}{of}", queue.level)
    };
    let columns = columns(width, view.queues.iter().map(|queue| words(queue).len()).max().unwrap_or(0));
    let level = |queue: &QueueBar, fill: f64| if queue.name == "finished" { level_of_ready(fill) } else { (GOOD, " ") };
    let lines = view.queues.iter().map(|queue| {
        let mut spans = vec![raw(format!("{:<NAME$}", queue.name))];
        match queue.fill {
            Some(fill) => {
                let (style, mark) = level(queue, fill);
                spans.extend(bar(fill, columns, style));
                spans.push(Span::styled(percent(fill, mark), style));
            }
            None => spans.push(raw(" ".repeat(columns + PERCENT - 1))),
        }
        spans.push(raw(words(queue)));
        spans
    });
    let short = view.queues.iter().flat_map(|queue| match queue.fill {
        Some(fill) => small(queue.name, fill, level(queue, fill)).to_vec(),
        None => vec![raw(format!("{} {}  ", queue.name, queue.level))],
    });
    Panel::new("queues", lines.collect(), short.collect())
}

fn machine(view: &View, width: u16) -> Panel {
    let words = view.machine.iter().filter(|load| load.of.is_some()).map(|load| load.words.chars().count() + 1);
    let columns = columns(width, words.max().unwrap_or(0));
    let lines = view.machine.iter().map(|Load { name, words, of }| {
        let mut spans = vec![raw(format!("{name:<NAME$}"))];
        if let Some(load) = of {
            let (style, mark) = level(*load);
            spans.extend(bar(*load, columns, style));
            spans.push(Span::styled(percent(*load, mark), style));
            spans.push(raw(" "));
        }
        spans.push(raw(words.clone()));
        spans
    });
    // Of the others there is no room to tell.
    let short = view.machine.iter().filter_map(|load| Some(small(load.name, load.of?, level(load.of?))));
    Panel::new("process", lines.collect(), short.flatten().collect())
}

/// Words below each other, under one name; the first, and how many more there are.
fn listed(name: &'static str, words: &[String]) -> Panel {
    let lines = words.iter().map(|words| vec![raw(words.clone())]).collect();
    let more = words.len().saturating_sub(1);
    let more = if more > 0 { format!("+{more}  ") } else { String::new() };
    let short = vec![soft(more), raw(words.first().cloned().unwrap_or_default())];
    Panel { list: true, ..Panel::new(name, lines, short) }
}

fn late(view: &View) -> Panel {
    listed("late", &view.late)
}

fn tuned(view: &View) -> Panel {
    listed("auto", &view.tuned)
}

fn bad(view: &View) -> Panel {
    let words = if view.bad == 1 { "1 bad sample".into() } else { format!("{} bad samples", units::count(view.bad)) };
    let line = vec![Span::styled(words, FULL)];
    Panel::new("bad", if view.bad > 0 { vec![line] } else { Vec::new() }, Vec::new())
}

fn messages(view: &View) -> Panel {
    // The latest first: what does not fit is old.
    listed("log", &view.lines.iter().rev().cloned().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    fn view() -> View {
        let bar =
            |name, busy, starved, blocked| StageBar { name, busy, starved, blocked, of: busy + starved + blocked };
        let queue = |name, level: &str, capacity: Option<&str>, fill| QueueBar {
            name,
            level: level.into(),
            capacity: capacity.map(Into::into),
            fill,
        };
        View {
            url: "s3://bucket/train".into(),
            what: "tar, 1,281,167 records, cpu, batch 64".into(),
            elapsed: 3725.0,
            place: "epoch 2 [37/391]".into(),
            done: 0.25,
            left: Some(754.0),
            samples: Rate { now: 1857.4, mean: 1544.0 },
            bytes: Rate { now: 2e8, mean: 1.9e8 },
            waits: [0.000_02, 0.0125, 1.5],
            waiting: Rate { now: 0.123, mean: 0.031 },
            waits_now: Some(1.25),
            curve: (0..60).map(|n| f64::from(n) / 59.0).collect(),
            stages: vec![bar("fetch", 0.4, 0.0, 0.1), bar("decode", 7.2, 0.8, 0.0), bar("trainer", 0.88, 0.12, 0.0)],
            queues: vec![
                queue("finished", "3", Some("4"), Some(0.75)),
                queue("jobs", "17", None, None),
                queue("encoded", "96.0 MiB", Some("128.0 MiB"), Some(0.75)),
            ],
            machine: vec![
                Load::new("CPU", "7.90 of 8 cores".into(), Some(0.9875)),
                Load::new("memory", "1.2 GiB of 64.0 GiB".into(), Some(0.019)),
                Load::new("disk", "190.7 MiB/s read, 0 B/s written".into(), None),
                Load::new("GPU", "busy, 3.0 GiB of 139.0 GiB".into(), Some(0.87)),
            ],
            late: vec![
                "12 for requests to the store (1.500 s)".into(),
                "longest: 1.2 s in epoch 0 batch 3: a.tar".into(),
            ],
            tuned: vec!["workers 8 → 3 (fewer keep up with the trainer); one change, after 2.500 s".into()],
            bad: 2,
            lines: vec!["Epoch [0][20/391]".into(), "warning: bad sample in epoch 0: decode: JPEG ends".into()],
        }
    }

    fn shown(width: u16, height: u16, view: &View, shown: Shown) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view, shown)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = (0..height).map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>());
        rows.map(|row| row.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    fn picture(width: u16, height: u16, view: &View) -> String {
        shown(width, height, view, Shown::default())
    }

    /// What a panel begins with, folded or not.
    const PANELS: [&str; 8] = ["rate", "waiting", "stages", "queues", "process", "late", "auto", "log"];

    fn begins_with_each(picture: &str) -> bool {
        PANELS.iter().all(|name| picture.lines().any(|line| line.starts_with(name)))
    }

    #[test]
    fn a_usual_terminal_shows_everything() {
        insta::assert_snapshot!("live_80x34", picture(80, 34, &view()));
    }

    #[test]
    fn a_wide_one_has_two_columns() {
        insta::assert_snapshot!("live_160x24", picture(160, 24, &view()));
    }

    #[test]
    fn in_a_narrow_one_panels_fold_and_none_vanishes() {
        let narrow = picture(60, 24, &view());
        insta::assert_snapshot!("live_60x24", narrow);
        assert!(begins_with_each(&narrow) && narrow.matches('▸').count() >= 6, "{narrow}");
        // Somebody wants them all the same.
        let mut open = Shown::default();
        open.toggle_fold(60);
        let open = shown(60, 32, &view(), open);
        insta::assert_snapshot!("live_60x32_unfolded", open);
        assert!(begins_with_each(&open) && !open.contains('▸'), "{open}");
    }

    #[test]
    fn in_a_low_one_the_last_panels_fold() {
        let low = picture(80, 18, &view());
        assert!(begins_with_each(&low), "{low}");
        assert!(low.contains("mean 1,544") && low.contains("process ▸"), "{low}");
    }

    #[test]
    fn help_tells_keys_and_words_and_a_second_look_is_the_picture_again() {
        let mut help = Shown::default();
        help.toggle_help();
        let told = shown(60, 24, &view(), help);
        insta::assert_snapshot!("live_help_60x24", told);
        assert!(told.lines().skip(3).all(|line| !line.contains('…')), "cut: {told}");
        help.toggle_help();
        assert_eq!(shown(60, 24, &view(), help), picture(60, 24, &view()));
    }

    #[test]
    fn a_small_one_shows_what_is_wanted_most() {
        let small = picture(40, 8, &view());
        assert!(small.contains("1,857 samples/s") && small.contains("12.3 % of the time"), "{small}");
        assert!(small.contains("q ends it") && small.contains("? help"), "{small}");
        assert!(!small.contains("auto") && small.contains("more in a taller window"), "{small}");
    }

    #[test]
    fn a_bar_shows_its_load_and_its_figure_says_the_same_without_colours() {
        let line = |busy: f64| {
            let stages = vec![StageBar { name: "decode", busy, starved: 4.0 - busy, blocked: 0.0, of: 4.0 }];
            let all = picture(80, 34, &View { stages, ..View::default() });
            all.lines().find(|line| line.starts_with("stages")).unwrap().to_owned()
        };
        let full = |line: &str| line.matches('█').count();
        let (idle, half, busy) = (line(0.0), line(2.0), line(4.0));
        assert!(full(&idle) == 0 && full(&half) * 2 == full(&busy), "{idle}\n{half}\n{busy}");
        assert!(half.contains(" 50 % ") && busy.contains("100 %!") && !half.contains('!'), "{half}\n{busy}");
    }

    #[test]
    fn no_size_and_no_figure_breaks_it() {
        let odd = View {
            done: f64::NAN,
            elapsed: f64::INFINITY,
            left: Some(-1.0),
            samples: Rate { now: f64::NAN, mean: f64::INFINITY },
            curve: vec![f64::NAN, 7.0, -1.0],
            stages: vec![StageBar {
                name: "decode",
                busy: f64::INFINITY,
                starved: f64::NAN,
                blocked: 0.0,
                of: f64::NAN,
            }],
            lines: vec!["\u{1b}[31mred\u{7}\n漢字".repeat(50)],
            ..view()
        };
        for view in [View::default(), view(), odd] {
            for width in [0, 1, 2, 9, 10, 20, 53, 79, 109, 110, 111, 300] {
                for height in [0, 1, 2, 3, 5, 24, 80] {
                    let _ = picture(width, height, &view);
                    let _ = shown(width, height, &view, Shown { help: true, folded: Some(false) });
                }
            }
        }
    }
}
