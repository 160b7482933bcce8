//! Draws the results of `benches/peers/compare.py`: bars of images a second, one panel for each kind of work.
//!
//! `cargo run --release --example chart -- results.json chart.svg [WORK…]`: these kinds of work, from top to bottom, or
//! all.
//!
//! The background is transparent; the text has a grey that is readable on white and on black.
#![allow(clippy::print_stderr, reason = "an example talks to its reader")]

use std::{collections::HashMap, env, error::Error, fs, process::ExitCode};

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use serde::Deserialize;

type Drawn = Result<(), Box<dyn Error>>;

const INK: RGBColor = RGBColor(128, 128, 128);
const OURS: RGBColor = RGBColor(58, 124, 201);
const THEIRS: RGBColor = RGBColor(172, 172, 166);

const WIDTH: u32 = 860;
/// Where bars begin, after the names.
const LEFT: i32 = 255;
/// Room after the longest bar for its numbers.
const RIGHT: i32 = 170;
const BAR: i32 = 24;
const HEAD: i32 = 34;
const GAP: i32 = 14;

#[derive(Deserialize)]
struct Results {
    workloads: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Workload {
    transform: String,
    /// Unordered; `rounds` has the order.
    summary: HashMap<String, Figures>,
}

#[derive(Deserialize)]
struct Figures {
    images_per_second: Spread,
    infeed_is_times: Spread,
    /// The other loader.
    rival: String,
    /// Whether it reads files that were converted before.
    #[serde(default)]
    prepared: bool,
}

#[derive(Clone, Copy, Deserialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

struct Row {
    name: String,
    figures: Figures,
}

impl Row {
    fn ours(&self) -> bool {
        self.name.starts_with("infeed")
    }

    fn rate(&self) -> Spread {
        self.figures.images_per_second
    }
}

struct Panel {
    title: String,
    rows: Vec<Row>,
}

impl Panel {
    fn height(&self) -> i32 {
        HEAD + BAR * self.rows.len() as i32 + GAP
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let [from, to, wanted @ ..] = args.as_slice() else {
        eprintln!("usage: chart results.json chart.svg [WORK…]");
        return ExitCode::from(2);
    };
    match panels(from, wanted).and_then(|panels| draw(&panels)).and_then(|svg| Ok(fs::write(to, svg)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("can't draw {from}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The fastest first, infeed's before the others'.
fn panels(from: &str, wanted: &[String]) -> Result<Vec<Panel>, Box<dyn Error>> {
    let mut results: Results = serde_json::from_slice(&fs::read(from)?)?;
    let wanted = if wanted.is_empty() { results.workloads.keys().cloned().collect() } else { wanted.to_vec() };
    let mut panels = Vec::new();
    for name in wanted {
        let workload = results.workloads.remove(&name).ok_or_else(|| format!("it holds no {name}"))?;
        let workload: Workload = serde_json::from_value(workload)?;
        let mut rows: Vec<Row> = workload.summary.into_iter().map(|(name, figures)| Row { name, figures }).collect();
        rows.sort_by(|a, b| b.ours().cmp(&a.ours()).then(b.rate().median.total_cmp(&a.rate().median)));
        let title = workload.transform;
        // A separate panel, because it is another kind of work on another scale.
        let (prepared, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.figures.prepared);
        panels.push(Panel { title: format!("{title}: images/s"), rows });
        if !prepared.is_empty() {
            let title = format!("{title}, files converted before (infeed: JPEGs): images/s");
            panels.push(Panel { title, rows: prepared });
        }
    }
    if panels.is_empty() {
        return Err("nothing was measured".into());
    }
    Ok(panels)
}

fn draw(panels: &[Panel]) -> Result<String, Box<dyn Error>> {
    let height: i32 = panels.iter().map(Panel::height).sum();
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height as u32)).into_drawing_area();
        let mut y = 0;
        for panel in panels {
            draw_panel(&area, panel, y)?;
            y += panel.height();
        }
        area.present()?;
    }
    Ok(svg)
}

fn draw_panel(area: &DrawingArea<SVGBackend<'_>, Shift>, panel: &Panel, top: i32) -> Drawn {
    let font = |size: i32| ("sans-serif", size).into_font().color(&INK);
    let before = font(16).pos(Pos::new(HPos::Right, VPos::Center));
    let behind = font(16).pos(Pos::new(HPos::Left, VPos::Center));
    let left = font(19).pos(Pos::new(HPos::Left, VPos::Center));
    area.draw(&Text::new(panel.title.clone(), (6, top + HEAD / 2), left))?;
    let most = panel.rows.iter().map(|row| row.rate().max).fold(0.0, f64::max).max(1e-9);
    let at = |rate: f64| LEFT + (rate / most * f64::from(WIDTH as i32 - LEFT - RIGHT)) as i32;
    for (row, n) in panel.rows.iter().zip(0..) {
        let y = top + HEAD + BAR * n;
        let middle = y + BAR / 2;
        let color = if row.ours() { OURS } else { THEIRS };
        let Spread { median, min, max } = row.rate();
        area.draw(&Text::new(row.name.clone(), (LEFT - 8, middle), before.clone()))?;
        area.draw(&Rectangle::new([(LEFT, y + 3), (at(median), y + BAR - 3)], color.filled()))?;
        // From the slowest round to the fastest.
        area.draw(&PathElement::new([(at(min), middle), (at(max), middle)], INK.stroke_width(1)))?;
        for end in [min, max] {
            area.draw(&PathElement::new([(at(end), middle - 5), (at(end), middle + 5)], INK.stroke_width(1)))?;
        }
        let Figures { rival, infeed_is_times: times, .. } = &row.figures;
        let word = match row.ours() || *rival == row.name {
            true => thousands(median),
            false => format!("{}  (infeed is {:.2}×)", thousands(median), times.median),
        };
        area.draw(&Text::new(word, (at(max) + 8, middle), behind.clone()))?;
    }
    Ok(())
}

/// 1857.3 as 1,857; numbers below ten keep one decimal.
fn thousands(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let split = digits.len() % 3;
    let (head, tail) = digits.split_at(split);
    let groups = tail.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    let parts: Vec<String> = Some(head.to_owned()).filter(|head| !head.is_empty()).into_iter().chain(groups).collect();
    parts.join(",")
}
