//! The lines of one YOLO text file.

/// An object in the image: its class, and numbers that are fractions of the width and height.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Line {
    /// Line number in the file, counted from 1.
    pub(super) number: usize,
    pub(super) class: u32,
    numbers: Vec<f64>,
    pub(super) wrong: Option<String>,
}

/// All lines that are not empty, valid or not.
pub(super) fn parse(bytes: &[u8]) -> Vec<Line> {
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let parsed = |(line, number)| match Line::parse(line) {
        Ok(line) => Line { number, ..line },
        Err(wrong) => Line { number, wrong: Some(wrong), ..Line::default() },
    };
    lines.map(parsed).collect()
}

fn wrong_count(count: usize) -> String {
    format!(
        "{count} numbers after the class: a box has 4 (centre x and y, width, height), an outline 6 or more, two a corner"
    )
}

/// Whether all lines have a box and equally many key points with their visibility.
pub(super) fn have_keypoints<'a>(lines: impl Iterator<Item = &'a Line> + Clone) -> bool {
    let mut good = lines.filter(|line| line.wrong.is_none()).peekable();
    let Some(count) = good.peek().map(|line| line.numbers.len()) else { return false };
    let mut is_visible = false;
    let all = good.all(|line| {
        let visible = line.visibility();
        is_visible |= visible == Some(true);
        visible.is_some() && line.numbers.len() == count
    });
    all && is_visible
}

impl Line {
    fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        // Some tools write class numbers as `0.0`.
        let whole = |number: &f64| number.fract() == 0.0 && (0.0..f64::from(u32::MAX)).contains(number);
        let class = first.parse::<f64>().ok().filter(whole);
        let class = class.ok_or_else(|| format!("`{first}` is not a class number"))? as u32;
        let number = |word: &str| {
            let number = word.parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| format!("`{word}` is not a number"))
        };
        let numbers = words.map(number).collect::<Result<Vec<f64>, _>>()?;
        if numbers.len() < 4 {
            return Err(wrong_count(numbers.len()));
        }
        // A box may extend beyond the edge a little; numbers in pixels are far larger.
        if let Some(far) = numbers.iter().find(|number| !(-1.0..=2.0).contains(*number)) {
            return Err(format!("{far} is not a fraction of the image's width or height, from 0 to 1"));
        }
        Ok(Self { class, numbers, ..Self::default() })
    }

    /// What is wrong with the count of its numbers. With key points, those after the box are theirs.
    pub(super) fn check_count(&mut self, keypoints: bool) {
        let count = self.numbers.len();
        let is_right = keypoints || count == 4 || count >= 6 && count.is_multiple_of(2);
        if self.wrong.is_none() && !is_right {
            self.wrong = Some(wrong_count(count));
        }
    }

    /// Key points with visibility after the box, if the line may have them, and whether one is visible: 2, which is no
    /// fraction of an image.
    fn visibility(&self) -> Option<bool> {
        let rest = self.numbers.get(4..).filter(|rest| !rest.is_empty() && rest.len().is_multiple_of(3))?;
        let visible = || rest.iter().skip(2).step_by(3);
        visible().all(|number| [0.0, 1.0, 2.0].contains(number)).then(|| visible().any(|number| *number == 2.0))
    }

    /// The outline, if the line has one: x and y alternating. With key points, the first four numbers are a box.
    pub(super) fn polygon(&self, keypoints: bool) -> Option<&[f64]> {
        (self.numbers.len() > 4 && !keypoints).then_some(&self.numbers)
    }

    /// Left, top, right, bottom.
    pub(super) fn corners(&self, keypoints: bool) -> [f64; 4] {
        match (self.polygon(keypoints), &self.numbers[..]) {
            (Some(polygon), _) => {
                let side = |at: usize| polygon.iter().copied().skip(at).step_by(2);
                let least = |at| side(at).fold(f64::INFINITY, f64::min);
                let most = |at| side(at).fold(f64::NEG_INFINITY, f64::max);
                [least(0), least(1), most(0), most(1)]
            }
            (None, [x, y, width, height, ..]) => [x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0],
            (None, _) => [f64::NAN; 4],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_boxes_and_outlines() {
        let lines = parse(b"\xef\xbb\xbf3 0.5 0.5 0.2 0.4\r\n\n1.0 0 0 1 0 0.5 1\n");
        assert_eq!((lines[0].class, lines[0].number, lines[1].class, lines[1].number), (3, 1, 1, 3));
        let [left, top, right, bottom] = lines[0].corners(false);
        assert!((left - 0.4).abs() < 1e-9 && (top - 0.3).abs() < 1e-9);
        assert!((right - 0.6).abs() < 1e-9 && (bottom - 0.7).abs() < 1e-9);
        assert_eq!(lines[1].corners(false), [0.0, 0.0, 1.0, 1.0]);
        assert_eq!((lines[0].polygon(false), lines[1].polygon(true)), (None, None));
    }

    #[test]
    fn what_is_no_line_is_told_by_its_number() {
        for (line, says) in [
            ("a cat on a mat", "`a` is not a class number"),
            ("0 0.5 0.5 0.2", "3 numbers"),
            ("0 0.5 0.5 0.2 0.2 0.9", "5 numbers"),
            ("0 100 200 30 40", "100 is not a fraction"),
            ("-1 0.5 0.5 0.2 0.2", "`-1` is not a class number"),
            ("0.5 0.5 0.5 0.2 0.2", "`0.5` is not a class number"),
            ("0 x 0.5 0.2 0.2", "`x` is not a number"),
            ("0 nan 0.5 0.2 0.2", "`nan` is not a number"),
        ] {
            let mut lines = parse(format!("\n{line}").as_bytes());
            lines[0].check_count(false);
            let wrong = lines[0].wrong.as_deref().unwrap_or_default();
            assert!(wrong.contains(says) && lines[0].number == 2, "{line}: {wrong}");
        }
    }

    #[test]
    fn any_bytes_are_lines() {
        let mut draws = infeed_core::random::SampleRng::new(5, 6, 9).op(0);
        for _ in 0..5_000 {
            let mut bytes = b"0 0.5 0.5 0.2 0.4\n1 0 0 1 0 0.5 1\n".to_vec();
            for _ in 0..1 + draws.below(4) {
                let at = draws.below(bytes.len() as u64) as usize;
                bytes[at] = if draws.chance(0.5) { b" \n0.e-9x"[draws.below(8) as usize] } else { draws.bits() as u8 };
            }
            let mut lines = parse(&bytes);
            lines.iter_mut().for_each(|line| line.check_count(false));
            for line in lines.iter().filter(|line| line.wrong.is_none()) {
                assert!(line.corners(false).iter().chain(&line.corners(true)).all(|corner| corner.is_finite()));
            }
        }
    }
}
