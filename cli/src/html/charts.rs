//! The pictures. Colours are of equal weight on light and dark paper; text and axes take the page's colour (see the
//! style of the page: what is black here is ink there).

use infeed::report::{Stage, StageReport};
use plotters::{coord::Shift, prelude::*};

use crate::units;

const BLUE: RGBColor = RGBColor(58, 124, 201);
const ORANGE: RGBColor = RGBColor(224, 122, 47);
const GREY: RGBColor = RGBColor(150, 150, 145);
const LINES: [RGBColor; 5] = [BLUE, ORANGE, RGBColor(46, 150, 100), RGBColor(176, 84, 170), RGBColor(196, 160, 32)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws into a text; `None` when the figures can't be drawn (there are none, or they are no numbers).
fn draw(width: u32, height: u32, picture: impl FnOnce(&Area<'_>) -> Drawn) -> Option<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        picture(&area).ok()?;
        area.present().ok()?;
    }
    // As wide as the page, never wider than drawn; on a phone it scrolls rather than becoming too small to read.
    let least = width.min(560);
    let style = format!("style=\"width:100%;min-width:{least}px;max-width:{width}px\" ");
    Some(svg.replacen(&format!("width=\"{width}\" height=\"{height}\" "), &style, 1))
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|value| value.is_finite()).fold(0.0, f64::max)
}

/// Lines over the time of the run; `None` when there is nothing to draw.
pub(crate) fn over_time(unit: &str, lines: &[(&str, Vec<(f64, f64)>)]) -> Option<String> {
    let end = most(lines.iter().flat_map(|(_, line)| line.iter().map(|(at, _)| *at)));
    let top = most(lines.iter().flat_map(|(_, line)| line.iter().map(|(_, value)| *value))) * 1.05;
    // One point is no line.
    if top <= 0.0 || lines.iter().all(|(_, line)| line.len() < 2) {
        return None;
    }
    draw(900, 220, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end.max(1e-6), 0.0..top)?;
        chart.configure_mesh().disable_mesh().x_desc("seconds since the start").y_desc(unit).draw()?;
        for ((name, line), color) in lines.iter().zip(LINES) {
            chart
                .draw_series(LineSeries::new(line.iter().copied(), color.stroke_width(1)))?
                .label(*name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2)));
        }
        chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).draw()?;
        Ok(())
    })
}

/// Step and wait of each batch over the time of the run.
pub(crate) fn time_line(steps: &[[f64; 3]]) -> Option<String> {
    let end = most(steps.iter().map(|[at, ..]| *at));
    // Not the first: its wait is the start of everything, and would flatten the rest.
    let steps = steps.get(1..).filter(|steps| !steps.is_empty())?;
    let top = most(steps.iter().map(|[_, _, time]| *time * 1e3)).max(1e-3) * 1.05;
    draw(900, 260, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end.max(1e-6), 0.0..top)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().x_desc("seconds since the start").y_desc("ms").draw()?;
        for (color, at, name) in [(BLUE, 2, "step"), (ORANGE, 1, "of it waiting")] {
            let points = steps.iter().map(|step| (step[0], step[at] * 1e3));
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(1)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2)));
        }
        chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).draw()?;
        Ok(())
    })
}

/// How many waits were how long, in steps of a factor of two.
pub(crate) fn histogram(steps: &[[f64; 3]]) -> Option<String> {
    let bins = wait_bins(steps.get(1..)?);
    if bins.iter().all(|count| *count == 0) {
        return None;
    }
    let top = *bins.iter().max()? as f64 * 1.05;
    draw(900, 220, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..bins.len() as f64, 0.0..top)?;
        let label = |x: &f64| units::time(LEAST * 2f64.powf(*x)).replace(".0 ", " ");
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().x_labels(9).x_label_formatter(&label).x_desc("wait").y_desc("batches");
        mesh.y_label_formatter(&|count| format!("{count:.0}")).draw()?;
        let bars = bins.iter().enumerate().filter(|(_, count)| **count > 0).map(|(i, count)| {
            Rectangle::new([(i as f64 + 0.06, 0.0), (i as f64 + 0.94, *count as f64)], ORANGE.filled())
        });
        chart.draw_series(bars)?;
        Ok(())
    })
}

/// The first bin ends at twice this, in seconds; each is twice as wide as the one before.
const LEAST: f64 = 1e-6;

/// Batches by wait; the last bin holds whatever is longer.
fn wait_bins(steps: &[[f64; 3]]) -> Vec<u64> {
    let mut bins = vec![0; 24];
    for [_, wait, _] in steps.iter().filter(|[_, wait, _]| wait.is_finite()) {
        let at = (wait.max(LEAST) / LEAST).log2().floor() as usize;
        bins[at.min(23)] += 1;
    }
    bins
}

/// Bars one below the other, each of several parts, with a name before and a word behind it.
fn bars(rows: &[(String, Vec<f64>, String)], legend: &[(RGBColor, &str)]) -> Option<String> {
    let length = |parts: &[f64]| parts.iter().map(|part| part.max(0.0)).sum::<f64>();
    let top = most(rows.iter().map(|(_, parts, _)| length(parts)));
    if top <= 0.0 {
        return None;
    }
    let (left, wide, high) = (100, 690, 40);
    draw(900, (high * rows.len() + 36) as u32, |area| {
        let font = ("sans-serif", 15);
        for (n, (name, parts, word)) in rows.iter().enumerate() {
            let mut from = 0.0;
            let y = (n * high) as i32;
            let at = |length: f64| left + (length / top * f64::from(wide)) as i32;
            area.draw(&Text::new(name.clone(), (6, y + 13), font))?;
            for (part, (color, _)) in parts.iter().zip(legend) {
                let to = from + part.max(0.0);
                area.draw(&Rectangle::new([(at(from), y + 6), (at(to), y + 34)], color.filled()))?;
                from = to;
            }
            area.draw(&Text::new(word.clone(), (at(from) + 6, y + 13), font))?;
        }
        let y = (high * rows.len()) as i32 + 8;
        for (n, (color, name)) in legend.iter().enumerate() {
            let x = left + 190 * n as i32;
            area.draw(&Rectangle::new([(x, y + 2), (x + 12, y + 14)], color.filled()))?;
            area.draw(&Text::new((*name).to_owned(), (x + 18, y), font))?;
        }
        Ok(())
    })
}

/// What each stage did with its time.
pub(crate) fn stages(stages: &[&StageReport]) -> Option<String> {
    let rows = stages.iter().map(|stage| {
        let parts = [stage.busy, stage.starved, stage.blocked].map(|time| time.as_secs_f64());
        let name = if stage.stage == Stage::Yield { "trainer" } else { stage.stage.name() };
        (name.to_owned(), parts.to_vec(), units::time(parts.iter().sum()))
    });
    bars(&rows.collect::<Vec<_>>(), &[(BLUE, "busy"), (GREY, "starved"), (ORANGE, "blocked")])
}

/// Rates over workers, a line for each name.
pub(crate) fn rates_by_workers(lines: &[(&str, Vec<(f64, f64)>)]) -> Option<String> {
    let points = || lines.iter().flat_map(|(_, line)| line.iter().copied());
    let workers = most(points().map(|(workers, _)| workers));
    let top = most(points().map(|(_, rate)| rate));
    let least = points().map(|(_, rate)| rate).filter(|rate| *rate > 0.0).fold(f64::MAX, f64::min);
    if top <= 0.0 {
        return None;
    }
    draw(900, 320, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(70)
            .build_cartesian_2d(0.5..workers + 0.5, (least * 0.8..top * 1.3).log_scale())?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().x_desc("workers").y_desc("samples/s").x_labels(workers.min(16.0) as usize + 1);
        mesh.x_label_formatter(&|x| format!("{x:.0}")).y_label_formatter(&|y| format!("{y:.0}")).draw()?;
        for ((name, line), color) in lines.iter().zip(LINES) {
            let points: Vec<_> = line.iter().copied().filter(|(_, rate)| *rate > 0.0).collect();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?
                .label(*name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2)));
            chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
        }
        chart.configure_series_labels().position(SeriesLabelPosition::UpperLeft).draw()?;
        Ok(())
    })
}

/// A step of each run: the trainer's part and its waiting.
pub(crate) fn trials(runs: &[(&str, f64, f64)]) -> Option<String> {
    let rows = runs
        .iter()
        .map(|(name, work, wait)| ((*name).to_owned(), vec![*work, *wait], units::time(work.max(0.0) + wait.max(0.0))));
    bars(&rows.collect::<Vec<_>>(), &[(BLUE, "the trainer's step"), (ORANGE, "waiting for data")])
}

/// A field of [`heat_map`].
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
    let (left, wide, high) = (110, 96, 44);
    let (width, height) = (left + wide * workers.len() as i32 + 10, high * batches.len() as i32 + 50);
    draw(width as u32, height as u32, |area| {
        let font = ("sans-serif", 15);
        for (y, batch) in batches.iter().rev().enumerate() {
            let y = y as i32 * high;
            area.draw(&Text::new(format!("batch {batch}"), (6, y + 14), font))?;
            for (x, n) in workers.iter().enumerate() {
                let x = left + x as i32 * wide;
                let cell = cells.iter().find(|cell| cell.workers == Some(*n) && cell.batch_size == Some(*batch));
                let Some(cell) = cell else { continue };
                let share = cell.samples_per_second / top;
                // On light and on dark paper alike: the page shines through where the rate is low.
                let color = BLUE.mix(0.1 + 0.75 * share);
                area.draw(&Rectangle::new([(x + 2, y + 2), (x + wide - 2, y + high - 2)], color.filled()))?;
                let rate = units::count(cell.samples_per_second.round() as u64);
                area.draw(&Text::new(rate, (x + 12, y + 14), font))?;
            }
        }
        for (x, n) in workers.iter().enumerate() {
            let at = (left + x as i32 * wide + 4, high * batches.len() as i32 + 12);
            area.draw(&Text::new(format!("{n} workers"), at, font))?;
        }
        Ok(())
    })
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
        assert!(line.starts_with("<svg") && line.contains("of it waiting") && line.contains("viewBox"), "{line}");
        assert!(!line.contains("width=\"900\" height"), "{line}");
        assert!(time_line(&[[0.0; 3], [0.0; 3]]).is_some());
        assert!(histogram(&[[0.0; 3], [0.0, 1e-3, 1.0]]).unwrap().contains("batches"));
        assert!(rates_by_workers(&[("all", vec![(1.0, 10.0)])]).unwrap().contains("samples/s"));
        assert!(rates_by_workers(&[("all", vec![(1.0, 0.0)])]).is_none());
    }
}
