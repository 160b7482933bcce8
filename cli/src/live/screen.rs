//! The picture: sections of lines, the most wanted first, in one column or two, cut to what fits.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::view::{QueueBar, Rate, StageBar, View};
use crate::units;

/// From here on two columns stand beside each other.
const WIDE: u16 = 110;
const SOFT: Style = Style::new().fg(Color::DarkGray);
const BUSY: Style = Style::new().fg(Color::Green);
const STARVED: Style = Style::new().fg(Color::Yellow);
const BLOCKED: Style = Style::new().fg(Color::Red);
/// Told apart without colours, too.
const BLOCKS: [(&str, Style); 3] = [("█", BUSY), ("░", STARVED), ("▒", BLOCKED)];

/// Lines with a name.
type Section = Vec<Line<'static>>;

pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let area = frame.area();
    if area.width == 0 || area.height == 0 {
        return;
    }
    let width = if area.width >= WIDE { area.width / 2 - 1 } else { area.width };
    let head = head(view, area.width);
    let figures = [rates(view), waits(view, width), stages(view, width), queues(view, width)];
    let words = [machine(view), late(view), tuned(view), messages(view)];
    let [top, below] = Layout::vertical([Constraint::Length(head.len() as u16), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(head), top);
    if area.width >= WIDE {
        let [left, _, right] =
            Layout::horizontal([Constraint::Length(width), Constraint::Length(2), Constraint::Min(0)]).areas(below);
        frame.render_widget(Paragraph::new(fit(figures.into(), left)), left);
        frame.render_widget(Paragraph::new(fit(words.into(), right)), right);
    } else {
        frame.render_widget(Paragraph::new(fit(figures.into_iter().chain(words).collect(), below)), below);
    }
}

/// Sections one below the other, with lines between them if all of it fits.
fn fit(sections: Vec<Section>, area: Rect) -> Section {
    let sections: Vec<Section> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    let lines: usize = sections.iter().map(Vec::len).sum();
    let airy = lines + sections.len() <= usize::from(area.height);
    let mut all = Section::new();
    for section in sections {
        if airy {
            all.push(Line::default());
        }
        all.extend(section);
    }
    all
}

fn title(name: &str) -> Span<'static> {
    Span::styled(format!("{name:<9}"), Style::new().add_modifier(Modifier::BOLD))
}

/// Below a title.
fn indent() -> Span<'static> {
    Span::raw(" ".repeat(9))
}

fn soft(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), SOFT)
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

fn head(view: &View, width: u16) -> Section {
    let name = Style::new().add_modifier(Modifier::REVERSED);
    let what = if view.what.is_empty() { String::new() } else { format!(" · {}", view.what) };
    let mut progress = vec![Span::raw(format!("{} · {}", view.place, clock(view.elapsed)))];
    if let Some(left) = view.left {
        progress.push(soft(format!(" · {} left", clock(left))));
    }
    // In front, so that it is seen in a narrow window, too.
    let top = vec![Span::styled(" infeed run ", name), soft(" q ends it  "), Span::raw(format!("{}{what}", view.url))];
    let bar = usize::from(width.min(200));
    let full = (view.done * bar as f64).round() as usize;
    vec![
        Line::from(top),
        Line::from(progress),
        Line::from(vec![Span::styled("━".repeat(full.min(bar)), BUSY), soft("─".repeat(bar.saturating_sub(full)))]),
    ]
}

fn rates(view: &View) -> Section {
    let Rate { now, mean } = view.samples;
    let mut lines = vec![Line::from(vec![
        title("rate"),
        Span::styled(format!("{} samples/s", count(now)), Style::new().add_modifier(Modifier::BOLD)),
        soft(format!("  mean {}", count(mean))),
    ])];
    // Datasets that lie in memory read nothing.
    if view.bytes.mean > 0.0 {
        let [now, mean] = [view.bytes.now, view.bytes.mean].map(|rate| units::size(rate as u64));
        lines.push(Line::from(vec![indent(), Span::raw(format!("{now}/s read")), soft(format!("  mean {mean}/s"))]));
    }
    lines
}

fn waits(view: &View, width: u16) -> Section {
    let [p50, p99, max] = view.waits.map(units::time);
    let style = match view.waiting.now {
        share if share > 0.2 => BLOCKED,
        share if share > 0.05 => STARVED,
        _ => BUSY,
    };
    let share = format!("{:.1} % of the time", 100.0 * view.waiting.now);
    let mut first = vec![title("waiting"), Span::styled(share, style)];
    first.push(soft(format!("  mean {:.1} %", 100.0 * view.waiting.mean)));
    if let Some(now) = view.waits_now.filter(|now| *now >= 0.5) {
        first.push(Span::styled(format!("  {} by now", units::time(now)), BLOCKED));
    }
    let second = vec![indent(), Span::raw(format!("p50 {p50}  p99 {p99}  max {max}"))];
    let columns = usize::from(width).saturating_sub(10);
    let from = view.curve.len().saturating_sub(columns);
    let third =
        vec![indent(), Span::styled(view.curve[from..].iter().map(|share| step(*share)).collect::<String>(), style)];
    [first, second, third].map(Line::from).into()
}

/// A column of an eighth to eight eighths; nothing at all is a dot.
fn step(share: f64) -> char {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    match share {
        share if share < 0.001 => '·',
        share => STEPS[((share * 8.0) as usize).min(7)],
    }
}

/// Places of a bar for parts of a whole: rounded, never more than there are, and a part that is there is seen.
fn places(parts: [f64; 3], width: usize) -> [usize; 3] {
    let all: f64 = parts.iter().sum();
    if all <= 0.0 || width == 0 {
        return [0; 3];
    }
    let mut cells =
        parts.map(|part| ((part / all * width as f64).round() as usize).max(usize::from(part / all > 0.01)));
    while cells.iter().sum::<usize>() > width {
        let largest = (0..3).max_by_key(|n| cells[*n]).unwrap_or(0);
        cells[largest] -= 1;
    }
    cells
}

fn stages(view: &View, width: u16) -> Section {
    let columns = usize::from(width).saturating_sub(9 + 10 + 38).clamp(6, 40);
    let line = |(n, StageBar { name, busy, starved, blocked }): (usize, &StageBar)| {
        let mut spans = vec![if n == 0 { title("stages") } else { indent() }, Span::raw(format!("{name:<10}"))];
        let cells = places([*busy, *starved, *blocked], columns);
        spans.extend(BLOCKS.iter().zip(cells).map(|((block, style), n)| Span::styled(block.repeat(n), *style)));
        spans.push(Span::raw(" ".repeat(columns - cells.iter().sum::<usize>())));
        spans.push(soft(format!(" busy {busy:.2} starved {starved:.2} blocked {blocked:.2}")));
        Line::from(spans)
    };
    view.stages.iter().enumerate().map(line).collect()
}

fn queues(view: &View, width: u16) -> Section {
    let columns = usize::from(width).saturating_sub(9 + 10 + 38).clamp(6, 40);
    let line = |(n, QueueBar { name, level, capacity, fill }): (usize, &QueueBar)| {
        let mut spans = vec![if n == 0 { title("queues") } else { indent() }, Span::raw(format!("{name:<10}"))];
        let full = fill.map(|fill| ((fill * columns as f64).round() as usize).min(columns));
        spans.push(Span::styled("█".repeat(full.unwrap_or(0)), BUSY));
        spans.push(soft(if fill.is_some() { "─" } else { " " }.repeat(columns - full.unwrap_or(0))));
        let of = capacity.as_ref().map_or(String::new(), |most| format!(" of {most}"));
        spans.push(Span::raw(format!(" {level}{of}")));
        Line::from(spans)
    };
    view.queues.iter().enumerate().map(line).collect()
}

fn machine(view: &View) -> Section {
    let line = |(n, (name, words)): (usize, &(&'static str, String))| {
        let first = if n == 0 { title("process") } else { indent() };
        Line::from(vec![first, Span::raw(format!("{name:<10}")), Span::raw(words.clone())])
    };
    view.machine.iter().enumerate().map(line).collect()
}

/// Words below each other, under one name.
fn listed(name: &str, words: &[String]) -> Section {
    let line = |(n, words): (usize, &String)| {
        Line::from(vec![if n == 0 { title(name) } else { indent() }, Span::raw(words.clone())])
    };
    words.iter().enumerate().map(line).collect()
}

fn late(view: &View) -> Section {
    listed("late", &view.late)
}

fn tuned(view: &View) -> Section {
    listed("auto", &view.tuned)
}

fn messages(view: &View) -> Section {
    let mut lines = Section::new();
    if view.bad > 0 {
        let words =
            if view.bad == 1 { "1 bad sample".into() } else { format!("{} bad samples", units::count(view.bad)) };
        lines.push(Line::from(vec![title("bad"), Span::styled(words, BLOCKED)]));
    }
    // The latest first: what does not fit is old.
    let words: Vec<String> = view.lines.iter().rev().cloned().collect();
    lines.extend(listed("log", &words));
    lines
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    fn view() -> View {
        let bar = |name, busy, starved, blocked| StageBar { name, busy, starved, blocked };
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
                ("CPU", "7.90 cores".into()),
                ("memory", "1.2 GiB".into()),
                ("GPU", "87 % busy, 3.0 GiB of 139.0 GiB".into()),
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

    fn picture(width: u16, height: u16, view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = (0..height).map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>());
        rows.map(|row| row.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_usual_terminal_shows_everything() {
        insta::assert_snapshot!("live_80x32", picture(80, 32, &view()));
    }

    #[test]
    fn a_wide_one_has_two_columns() {
        insta::assert_snapshot!("live_140x24", picture(140, 24, &view()));
    }

    #[test]
    fn a_small_one_shows_what_is_wanted_most() {
        let small = picture(40, 8, &view());
        assert!(small.contains("1,857 samples/s") && small.contains("12.3 % of the time"), "{small}");
        assert!(small.contains("q ends it"), "{small}");
        assert!(!small.contains("auto"), "{small}");
    }

    #[test]
    fn no_size_and_no_figure_breaks_it() {
        let odd = View {
            done: f64::NAN,
            elapsed: f64::INFINITY,
            left: Some(-1.0),
            samples: Rate { now: f64::NAN, mean: f64::INFINITY },
            curve: vec![f64::NAN, 7.0, -1.0],
            stages: vec![StageBar { name: "decode", busy: f64::INFINITY, starved: f64::NAN, blocked: 0.0 }],
            lines: vec!["\u{1b}[31mred\u{7}\n漢字".repeat(50)],
            ..view()
        };
        for view in [View::default(), view(), odd] {
            for width in [0, 1, 2, 9, 10, 20, 53, 79, 109, 110, 111, 300] {
                for height in [0, 1, 2, 3, 5, 24, 80] {
                    let _ = picture(width, height, &view);
                }
            }
        }
    }

    #[test]
    fn parts_fill_the_bar_and_none_is_lost() {
        assert_eq!(places([1.0, 1.0, 1.0], 10).iter().sum::<usize>(), 9);
        assert_eq!(places([1.0, 0.02, 0.02], 10), [8, 1, 1]);
        assert_eq!(places([0.0, 0.0, 0.0], 10), [0; 3]);
        assert_eq!(places([1.0, 1.0, 1.0], 1).iter().sum::<usize>(), 1);
    }
}
