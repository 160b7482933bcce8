//! Charts. Curves are SVG and drawn twice: for a screen or paper, and for a phone, where the letters of the larger
//! drawing would be too small. The page's style shows one of them. Bars and maps are HTML boxes. The legend stands
//! above a chart, where no curve crosses it, and each axis has its unit.
//!
//! Colours look equally strong on light and dark pages. Text and axes, which are black here, take the page's text
//! colour.

use std::fmt::Write as _;

use infeed::report::{Stage, StageReport};
use plotters::{coord::Shift, prelude::*};

use super::page::escape;
use crate::units;

const BLUE: RGBColor = RGBColor(58, 124, 201);
const ORANGE: RGBColor = RGBColor(224, 122, 47);
const GREY: RGBColor = RGBColor(150, 150, 145);
const LINES: [RGBColor; 5] = [BLUE, ORANGE, RGBColor(46, 150, 100), RGBColor(176, 84, 170), RGBColor(196, 160, 32)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// One of the two drawings of a chart.
#[derive(Clone, Copy)]
struct Size {
    class: &'static str,
    width: u32,
    height: u32,
    /// Most labels along the lower axis.
    words: usize,
}

const SIZES: [Size; 2] = [
    Size { class: "broad", width: 760, height: 230, words: 9 },
    Size { class: "narrow", width: 350, height: 220, words: 4 },
];

/// Both drawings, with `words` as their text for screen readers. `None` if the figures cannot be drawn: there are none,
/// or they are not finite.
fn draw(words: &str, picture: impl Fn(&Area<'_>, Size) -> Drawn) -> Option<String> {
    let mut both = String::new();
    for size in SIZES {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (size.width, size.height)).into_drawing_area();
            picture(&area, size).ok()?;
            area.present().ok()?;
        }
        // As wide as the page.
        let fixed = format!("width=\"{}\" height=\"{}\" ", size.width, size.height);
        let named = format!("class=\"{}\" role=\"img\" aria-label=\"{}\" ", size.class, escape(words));
        both.push_str(&svg.replacen(&fixed, &named, 1));
    }
    Some(both)
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|value| value.is_finite()).fold(0.0, f64::max)
}

fn css(color: RGBColor) -> String {
    format!("#{:02x}{:02x}{:02x}", color.0, color.1, color.2)
}

/// The legend: colours, and the quantities of the axes.
fn legend(names: &[(RGBColor, &str)], axes: &str) -> String {
    let mut text = String::from("<ul class=\"legend\">");
    for (color, name) in names {
        let _ = write!(text, "<li><i style=\"background:{}\"></i>{}</li>", css(*color), escape(name));
    }
    if !axes.is_empty() {
        let _ = write!(text, "<li class=\"soft\">{}</li>", escape(axes));
    }
    text + "</ul>"
}

/// One line of a chart.
struct Curve<'a> {
    name: &'a str,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

impl Curve<'_> {
    /// Minimum and maximum of each section. More points than columns would only make the file larger.
    fn thinned(&self, columns: usize) -> Vec<(f64, f64)> {
        let each = self.points.len().div_ceil(columns.max(1)).max(1);
        if each <= 2 {
            return self.points.clone();
        }
        let ends = self.points.chunks(each).flat_map(|part| {
            let at = |greater: bool| {
                let order = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
                if greater { part.iter().max_by(order) } else { part.iter().min_by(order) }
            };
            let mut pair: Vec<_> = at(false).into_iter().chain(at(true)).copied().collect();
            pair.sort_by(|a, b| a.0.total_cmp(&b.0));
            pair
        });
        ends.collect()
    }
}

/// Lines over the time of the run, from 0 up, in `unit`.
fn curves(unit: &str, curves: &[Curve<'_>]) -> Option<String> {
    let points = || curves.iter().flat_map(|curve| curve.points.iter());
    let end = most(points().map(|(at, _)| *at)).max(1e-6);
    let top = most(points().map(|(_, value)| *value)) * 1.05;
    // One point does not make a line.
    if top <= 0.0 || curves.iter().all(|curve| curve.points.len() < 2) {
        return None;
    }
    let names: Vec<_> = curves.iter().map(|curve| (curve.color, curve.name)).collect();
    let said = names.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    let picture = draw(&format!("{said} in {unit} over the seconds of the run"), |area, size| {
        let mut chart = ChartBuilder::on(area)
            .margin(6)
            // Space for half of a label at the end.
            .margin_right(26)
            .x_label_area_size(24)
            .y_label_area_size(74)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        let (seconds, value) =
            (|at: &f64| format!("{} s", tick(*at, end)), |y: &f64| format!("{} {unit}", tick(*y, top)));
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().x_labels(size.words).y_labels(5).x_label_formatter(&seconds).y_label_formatter(&value);
        mesh.draw()?;
        for curve in curves {
            let points = curve.thinned(size.width as usize / 2);
            chart.draw_series(LineSeries::new(points, curve.color.stroke_width(1)))?;
        }
        Ok(())
    });
    Some(legend(&names, &format!("{unit}, over the seconds since the start")) + &picture?)
}

/// A position on an axis, without the rounding errors of adding steps.
fn tick(value: f64, most: f64) -> String {
    if value.abs() < most * 1e-9 { "0".into() } else { units::number(value) }
}

/// Lines over the time of the run; `None` if there is nothing to draw.
pub(crate) fn over_time(unit: &str, lines: &[(&str, Vec<(f64, f64)>)]) -> Option<String> {
    let lines = lines.iter().zip(LINES).map(|((name, points), color)| Curve { name, color, points: points.clone() });
    curves(unit, &lines.collect::<Vec<_>>())
}

/// Step and wait of each batch over the time of the run.
pub(crate) fn time_line(steps: &[[f64; 3]]) -> Option<String> {
    // Without the first batch, whose wait includes the start and would flatten the rest.
    let steps = steps.get(1..).filter(|steps| !steps.is_empty())?;
    let lines = [(BLUE, 2, "step"), (ORANGE, 1, "of it waiting")].map(|(color, at, name)| Curve {
        name,
        color,
        points: steps.iter().map(|step| (step[0], step[at] * 1e3)).collect(),
    });
    curves("ms", &lines)
}

/// Histogram of waits, with bins that double in width.
pub(crate) fn histogram(steps: &[[f64; 3]]) -> Option<String> {
    let bins = wait_bins(steps.get(1..)?);
    let first = bins.iter().position(|count| *count > 0)?;
    let last = bins.iter().rposition(|count| *count > 0)? + 1;
    let top = *bins.iter().max()? as f64 * 1.05;
    let picture = draw("How many batches waited how long", |area, size| {
        let mut chart = ChartBuilder::on(area)
            .margin(6)
            .margin_right(30)
            .x_label_area_size(24)
            .y_label_area_size(74)
            .build_cartesian_2d(first as f64..last as f64, 0.0..top)?;
        let bounds = |x: &f64| if x.fract() == 0.0 { short_time(LEAST * 2f64.powf(*x)) } else { String::new() };
        let whole = |n: &f64| if n.fract() == 0.0 { units::count(*n as u64) } else { String::new() };
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().x_labels((last - first + 1).min(size.words)).y_labels(5);
        mesh.x_label_formatter(&bounds).y_label_formatter(&whole).draw()?;
        let bars = bins.iter().enumerate().filter(|(_, count)| **count > 0).map(|(i, count)| {
            Rectangle::new([(i as f64 + 0.06, 0.0), (i as f64 + 0.94, *count as f64)], ORANGE.filled())
        });
        chart.draw_series(bars)?;
        Ok(())
    });
    Some(legend(&[(ORANGE, "batches")], "by how long the trainer waited for them") + &picture?)
}

/// `16 ms`: two digits, for a label of an axis.
fn short_time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "µs"),
    };
    if value < 10.0 { format!("{value:.1} {unit}").replace(".0 ", " ") } else { format!("{value:.0} {unit}") }
}

/// The first bin ends at twice this, in seconds; each is twice as wide as the one before.
const LEAST: f64 = 1e-6;

/// Batches by wait. The last bin includes all longer waits.
fn wait_bins(steps: &[[f64; 3]]) -> Vec<u64> {
    let mut bins = vec![0; 24];
    for [_, wait, _] in steps.iter().filter(|[_, wait, _]| wait.is_finite()) {
        let at = (wait.max(LEAST) / LEAST).log2().floor() as usize;
        bins[at.min(23)] += 1;
    }
    bins
}

/// Bars one below the other, each with several parts, a name before it and a text after it.
fn bars(rows: &[(String, Vec<f64>, String)], parts: &[(RGBColor, &str)]) -> Option<String> {
    let length = |parts: &[f64]| parts.iter().map(|part| part.max(0.0)).sum::<f64>();
    let top = most(rows.iter().map(|(_, parts, _)| length(parts)));
    if top <= 0.0 {
        return None;
    }
    let mut text = legend(parts, "") + "<div class=\"bars\">";
    for (name, lengths, word) in rows {
        let _ = write!(text, "<span>{}</span><span class=\"track\">", escape(name));
        for (length, (color, _)) in lengths.iter().zip(parts).filter(|(length, _)| **length > 0.0) {
            let _ = write!(text, "<i style=\"width:{:.2}%;background:{}\"></i>", 100.0 * length / top, css(*color));
        }
        let _ = write!(text, "</span><span>{}</span>", escape(word));
    }
    Some(text + "</div>")
}

/// The time of each stage: busy, starved, blocked.
pub(crate) fn stages(stages: &[&StageReport]) -> Option<String> {
    let rows = stages.iter().map(|stage| {
        let parts = [stage.busy, stage.starved, stage.blocked].map(|time| time.as_secs_f64());
        let name = if stage.stage == Stage::Yield { "trainer" } else { stage.stage.name() };
        (name.to_owned(), parts.to_vec(), units::time(parts.iter().sum()))
    });
    bars(&rows.collect::<Vec<_>>(), &[(BLUE, "busy"), (GREY, "starved"), (ORANGE, "blocked")])
}

/// A step of each run: the trainer's part and its waiting.
pub(crate) fn trials(runs: &[(&str, f64, f64)]) -> Option<String> {
    let rows = runs
        .iter()
        .map(|(name, work, wait)| ((*name).to_owned(), vec![*work, *wait], units::time(work.max(0.0) + wait.max(0.0))));
    bars(&rows.collect::<Vec<_>>(), &[(BLUE, "the trainer's step"), (ORANGE, "waiting for data")])
}

/// Round numbers for a logarithmic axis, three or more: of decades, or of steps within them.
fn logarithmic_places(low: f64, high: f64) -> Vec<f64> {
    const STEPS: [&[f64]; 4] = [&[1.0], &[1.0, 3.0], &[1.0, 2.0, 5.0], &[1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0]];
    let decades = || (low.log10().floor() as i32..=high.log10().ceil() as i32).map(|decade| 10f64.powi(decade));
    let within = |place: &f64| (low..=high).contains(place);
    let each = STEPS.iter().map(|steps| decades().flat_map(|ten| steps.iter().map(move |step| ten * step)));
    let mut choices = each.map(|places| places.filter(within).collect::<Vec<_>>());
    choices.find(|places| places.len() > 2).unwrap_or_else(|| {
        // The same numbers as on a linear axis.
        let mut step = 10f64.powf((high - low).log10().floor());
        while (high - low) / step < 4.0 {
            step /= 2.0;
        }
        ((low / step).ceil() as u64..=(high / step) as u64).map(|n| n as f64 * step).collect()
    })
}

/// Rates over workers, with one line per name.
pub(crate) fn rates_by_workers(lines: &[(String, Vec<(f64, f64)>)]) -> Option<String> {
    let points = || lines.iter().flat_map(|(_, line)| line.iter().copied());
    let workers = most(points().map(|(workers, _)| workers));
    let top = most(points().map(|(_, rate)| rate));
    let least = points().map(|(_, rate)| rate).filter(|rate| *rate > 0.0).fold(f64::MAX, f64::min);
    if top <= 0.0 {
        return None;
    }
    let (low, high) = (least * 0.8, top * 1.3);
    let places = logarithmic_places(low, high);
    let colors = LINES.into_iter().cycle();
    let names: Vec<_> = lines.iter().zip(colors).map(|((name, _), color)| (color, name.as_str())).collect();
    let picture = draw("Samples a second by the number of workers", |area, size| {
        let mut chart =
            ChartBuilder::on(area)
                .margin(6)
                .margin_right(16)
                .x_label_area_size(24)
                .y_label_area_size(74)
                .build_cartesian_2d(0.5..workers + 0.5, (low..high).log_scale().with_key_points(places.clone()))?;
        let whole = |x: &f64| if x.fract() == 0.0 { format!("{x:.0}") } else { String::new() };
        let rate = |y: &f64| format!("{}/s", units::number(*y));
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().x_labels(2 * (workers as usize).clamp(1, size.words)).y_labels(6);
        mesh.x_label_formatter(&whole).y_label_formatter(&rate).draw()?;
        for ((_, line), (color, _)) in lines.iter().zip(&names) {
            let points: Vec<_> = line.iter().copied().filter(|(_, rate)| *rate > 0.0).collect();
            chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?;
            chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
        }
        Ok(())
    });
    Some(legend(&names, "samples/s, over the number of workers") + &picture?)
}

/// A cell of [`heat_map`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct HeatCell {
    pub workers: Option<u64>,
    pub batch_size: Option<u64>,
    pub samples_per_second: f64,
}

/// Rates by workers (across) and batch size (up).
pub(crate) fn heat_map(cells: &[HeatCell]) -> Option<String> {
    let axis = |pick: fn(&HeatCell) -> Option<u64>| {
        let mut values: Vec<u64> = cells.iter().filter_map(pick).collect();
        values.sort_unstable();
        values.dedup();
        values
    };
    let (workers, batches) = (axis(|cell| cell.workers), axis(|cell| cell.batch_size));
    let top = most(cells.iter().map(|cell| cell.samples_per_second));
    if top <= 0.0 || workers.is_empty() || batches.is_empty() {
        return None;
    }
    let mut text = String::from("<div class=\"wide\"><table class=\"heat\"><tbody>");
    for batch in batches.iter().rev() {
        let _ = write!(text, "<tr><td>batch {}</td>", units::count(*batch));
        for n in &workers {
            let cell = cells.iter().find(|cell| cell.workers == Some(*n) && cell.batch_size == Some(*batch));
            text += &cell.map_or("<td></td>".into(), |cell| {
                // Transparent at low rates, so that it fits light and dark pages.
                let share = 0.08 + 0.6 * (cell.samples_per_second / top).clamp(0.0, 1.0);
                let (RGBColor(r, g, b), rate) = (BLUE, units::number(cell.samples_per_second));
                format!("<td style=\"background:rgba({r},{g},{b},{share:.2})\">{rate}</td>")
            });
        }
        text += "</tr>";
    }
    let workers = workers.iter().map(|n| format!("<th>{n} worker{}</th>", if *n == 1 { "" } else { "s" }));
    let _ = write!(text, "<tr><th></th>{}</tr></tbody></table></div>", workers.collect::<String>());
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_fall_into_doubling_bins() {
        let step = |wait: f64| [0.0, wait, 1.0];
        let bins = wait_bins(&[step(0.0), step(1e-6), step(3e-6), step(1e9), step(f64::NAN)]);
        assert_eq!((bins[0], bins[1], bins[23], bins.iter().sum::<u64>()), (2, 1, 1, 4));
    }

    #[test]
    fn charts_of_nothing_are_none_and_of_oddities_do_not_panic() {
        assert!(time_line(&[]).is_none() && histogram(&[[0.0; 3]]).is_none());
        assert!(stages(&[]).is_none() && rates_by_workers(&[]).is_none() && heat_map(&[]).is_none());
        let cell = HeatCell { workers: Some(2), batch_size: Some(8), samples_per_second: 1234.0 };
        let map = heat_map(&[cell, HeatCell::default()]).unwrap();
        assert!(map.contains("1,234") && map.contains("batch 8") && map.contains("2 workers"), "{map}");
        let line = time_line(&[[0.1, 0.1, 0.1], [0.2, 0.0, 0.1], [0.3, 0.05, 0.1]]).unwrap();
        assert!(line.contains("of it waiting") && line.matches("viewBox").count() == 2, "{line}");
        assert!(line.contains("class=\"narrow\"") && !line.contains("width=\"760\" height"), "{line}");
        assert!(time_line(&[[0.0; 3], [0.0; 3], [f64::NAN; 3]]).is_none());
        assert!(histogram(&[[0.0; 3], [0.0, 1e-3, 1.0]]).unwrap().contains("batches"));
        assert!(rates_by_workers(&[("all".into(), vec![(1.0, 10.0)])]).unwrap().contains("samples/s"));
        assert!(rates_by_workers(&[("all".into(), vec![(1.0, 0.0)])]).is_none());
    }

    #[test]
    fn a_thinned_line_keeps_its_peaks_and_its_order() {
        let points: Vec<_> =
            (0..4000).map(|n| (f64::from(n), if n == 1234 { 9.0 } else { f64::from(n % 2) })).collect();
        let thin = Curve { name: "", color: BLUE, points }.thinned(300);
        assert!(thin.len() <= 600 && thin.contains(&(1234.0, 9.0)), "{}", thin.len());
        assert!(thin.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }

    #[test]
    fn a_logarithmic_axis_has_places_however_short_it_is() {
        for (low, high, want) in [
            (1.0, 1e6, &[1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6][..]),
            (172.0, 494.0, &[200.0, 300.0, 400.0]),
            (80.0, 130.0, &[80.0, 90.0, 100.0, 110.0, 120.0, 130.0]),
            (3030.0, 4930.0, &[3250.0, 3500.0, 3750.0, 4000.0, 4250.0, 4500.0, 4750.0]),
            (0.08, 13.0, &[0.1, 1.0, 10.0]),
        ] {
            let places = logarithmic_places(low, high);
            let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9 * b;
            assert!(places.len() == want.len() && places.iter().zip(want).all(near), "{low} to {high}: {places:?}");
        }
        for n in 0..2000 {
            let low = 1e-3 * 1.017f64.powi(n);
            let places = logarithmic_places(low, low * (1.625 + f64::from(n % 40)));
            assert!((3..=10).contains(&places.len()), "{low}: {places:?}");
        }
        let chart = rates_by_workers(&[("all".into(), vec![(1.0, 215.3), (2.0, 380.3)])]).unwrap();
        assert!(chart.contains("300/s") && !chart.contains("1,000/s"), "{chart}");
    }

    #[test]
    fn each_axis_has_its_unit() {
        let line = over_time("MiB/s", &[("disk read", vec![(0.0, 0.0), (12.0, 180.0)])]).unwrap();
        assert!(line.contains("100 MiB/s") && line.contains("10 s"), "{line}");
        let waits = histogram(&[[0.0; 3], [0.0, 0.016, 1.0], [0.0, 0.001, 1.0], [0.0, 0.001, 1.0]]).unwrap();
        assert!(waits.contains(" ms") && !waits.contains(">1.5<"), "{waits}");
    }
}
