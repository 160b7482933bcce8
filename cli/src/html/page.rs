//! A page and its parts: headings, text, the verdict, tables, charts.

use std::{fmt::Write as _, time::SystemTime};

use infeed::internal::printable;

use crate::{invocation, process, report::Verdict, units};

/// Styles for light and dark screens and for paper. Below 640 pixels, columns are stacked.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1c1a;--soft:#63635e;--line:#d9d8d2;--paper:#fdfdfb;--card:#f4f3ee;--good:#1b7f4d}\
@media(prefers-color-scheme:dark){:root{--ink:#e9e8e3;--soft:#a2a19a;--line:#3a3a37;--paper:#161615;--card:#232321;--good:#5fc08d}}\
*{box-sizing:border-box}html{-webkit-text-size-adjust:100%}\
body{margin:0 auto;max-width:72rem;padding:1.2rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink);\
background:var(--paper);overflow-wrap:anywhere}h1{font-size:1.5rem;line-height:1.2;margin:.2em 0}\
h2{font-size:1.1rem;margin:1.9em 0 .4em}p{margin:.4em 0}.soft{color:var(--soft)}\
.verdict{background:var(--card);border-left:.3rem solid var(--good);padding:.6rem 1rem;margin:1rem 0}\
.verdict strong{font-size:1.08rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}\
th,td{text-align:right;padding:.22rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap;vertical-align:top}\
th:first-child,td:first-child{text-align:left;padding-left:0}th{color:var(--soft);font-weight:600}\
td.words{white-space:pre-line;text-align:left;overflow-wrap:anywhere;min-width:14rem}\
.facts td:first-child{color:var(--soft)}\
figure{margin:.6rem 0}svg{height:auto;display:block;width:100%}svg text{fill:var(--ink);font-family:system-ui,sans-serif}\
svg [stroke=\"#000000\"]{stroke:var(--soft)}svg.broad{max-width:900px}svg.narrow{display:none;max-width:480px}\
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;margin:.3rem 0;padding:0;list-style:none;font-size:.9rem}\
.legend i{display:inline-block;width:.8rem;height:.8rem;margin-right:.4rem}\
.bars{display:grid;grid-template-columns:max-content minmax(4rem,1fr) max-content;gap:.35rem .7rem;align-items:center;\
max-width:900px;font-size:.92rem;font-variant-numeric:tabular-nums}\
.track{display:flex;height:1.5rem;background:var(--card)}.track i{display:block;height:100%}\
.heat td{border:2px solid var(--paper);padding:.45rem .8rem}.heat td:first-child{padding-left:0}\
.track i,.legend i,.heat td,.verdict{-webkit-print-color-adjust:exact;print-color-adjust:exact}\
@media screen and (max-width:640px){body{padding:.9rem}svg.broad{display:none}svg.narrow{display:block}\
.facts,.facts tbody,.facts tr,.facts td,.cards,.cards tbody,.cards tr{display:block}\
.facts td,.cards td{border:0;padding:.05rem 0;min-width:0}.facts td{overflow-wrap:anywhere}\
.facts td:first-child{font-size:.85rem;white-space:normal}\
.facts tr{border-bottom:1px solid var(--line);padding:.3rem 0}\
.cards thead{display:none}.cards tr{background:var(--card);padding:.5rem .8rem;margin:.6rem 0}\
.cards td{display:flex;justify-content:space-between;gap:1.2rem;white-space:normal;overflow-wrap:anywhere}\
.cards td::before{content:attr(data-label);color:var(--soft);flex:none;text-align:left;font-weight:400}\
.cards td:first-child{font-weight:600}.cards td[data-label=\"\"]::before{display:none}\
.cards td[data-label=\"\"]{justify-content:flex-start}.cards td:empty{display:none}\
.long td:first-child,.long th:first-child,.heat td:first-child,.heat th:first-child{position:sticky;left:0;\
background:var(--paper);padding-right:.6rem}}\
@page{margin:15mm}@media print{:root{color-scheme:light;--ink:#000;--soft:#444;--line:#bbb;--paper:#fff;--card:#f0f0ec;--good:#1b7f4d}\
body{max-width:none;padding:0;font-size:10.5pt}h2{break-after:avoid}figure,tr,.verdict{break-inside:avoid}\
thead{display:table-header-group}.wide{overflow:visible}table{font-size:8.5pt}th,td{padding:.15rem .3rem;overflow-wrap:normal}\
th{white-space:normal}td.words{min-width:0;overflow-wrap:anywhere}.long{font-size:7.5pt}}";

/// A table with more rows stays a table on a phone, in its own scrolling box, because so many cards would be too long.
const CARDS: usize = 12;

/// Escapes text for HTML.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Direction marks would also affect the text of the page.
            c if printable::is_order(c) && !c.is_control() => out.extend(c.escape_default()),
            // HTML does not allow these.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A page that is built from parts.
pub(crate) struct Page(String);

impl Page {
    /// Starts a page. The time and the version stand below the title.
    pub(crate) fn new(title: &str, about: &str) -> Self {
        Self::written(title, about, SystemTime::now())
    }

    fn written(title: &str, about: &str, at: SystemTime) -> Self {
        let (title, about) = (escape(title), escape(about));
        let mut text = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        let (date, version) = (units::date(at), env!("CARGO_PKG_VERSION"));
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}: {about}</title>\
             <style>{STYLE}</style></head>\n<body><h1>{title}</h1><p>{about}</p>\
             <p class=\"soft\">{date} · infeed {version}</p>\n"
        );
        Self(text)
    }

    pub(crate) fn heading(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.0, "<h2>{}</h2>", escape(text));
        self
    }

    pub(crate) fn words(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.0, "<p>{}</p>", escape(text));
        self
    }

    /// The verdict and the next step, in a box.
    pub(crate) fn verdict(&mut self, verdict: &Verdict) -> &mut Self {
        let _ = write!(self.0, "<div class=\"verdict\"><p><strong>{}</strong></p>", escape(&verdict.found));
        if let Some(next) = &verdict.next {
            let _ = write!(self.0, "<p><span class=\"soft\">Next:</span> {}</p>", escape(next));
        }
        self.0.push_str("</div>\n");
        self
    }

    /// A table of figures, with names in the first column. Without a head: names and texts.
    ///
    /// On a phone, names stand above their texts, and each row of figures becomes a card, unless there are many rows.
    pub(crate) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> &mut Self {
        if rows.is_empty() {
            return self;
        }
        let class = match head {
            [] => "facts",
            _ if rows.len() <= CARDS => "cards",
            _ => "long",
        };
        let _ = write!(self.0, "<div class=\"wide\"><table class=\"{class}\">");
        if !head.is_empty() {
            let cells: String = head.iter().map(|cell| format!("<th>{}</th>", escape(cell))).collect();
            let _ = write!(self.0, "<thead><tr>{cells}</tr></thead>");
        }
        self.0.push_str("<tbody>");
        for row in rows {
            let cells = row.iter().enumerate().map(|(n, cell)| {
                let cell = escape(cell);
                // An error takes the place of all missing figures.
                let rest = head.len().saturating_sub(n);
                match head.get(n) {
                    None if n == 0 => format!("<td>{cell}</td>"),
                    None => format!("<td class=\"words\">{cell}</td>"),
                    Some(_) if n + 1 == row.len() && rest > 1 => {
                        format!("<td class=\"words\" colspan=\"{rest}\">{cell}</td>")
                    }
                    Some(label) => format!("<td data-label=\"{}\">{cell}</td>", escape(label)),
                }
            });
            let _ = write!(self.0, "<tr>{}</tr>", cells.collect::<String>());
        }
        self.0.push_str("</tbody></table></div>\n");
        self
    }

    /// A chart, if there is one.
    pub(crate) fn figure(&mut self, picture: Option<String>) -> &mut Self {
        if let Some(picture) = picture {
            let _ = writeln!(self.0, "<figure>{picture}</figure>");
        }
        self
    }

    /// The command and the machine.
    pub(crate) fn end(mut self) -> String {
        self.heading("Command and machine");
        let cores = infeed::internal::machine::cores().get();
        let mut rows = vec![
            vec!["command".into(), invocation::shell_line()],
            vec!["infeed".into(), env!("CARGO_PKG_VERSION").into()],
            vec!["system".into(), format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)],
            vec!["cores".into(), cores.to_string()],
        ];
        if let Some(model) = process::processor() {
            rows.push(vec!["processor".into(), model]);
        }
        self.table(&[], &rows);
        self.0.push_str("</body></html>\n");
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn nothing_of_the_data_becomes_markup() {
        let nasty = "<script>alert('x')</script>&\"\u{1}";
        assert_eq!(escape(nasty), "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;\u{fffd}");
        let mut page = Page::new(nasty, nasty);
        page.heading(nasty).words(nasty).verdict(&Verdict { found: nasty.into(), next: Some(nasty.into()) });
        page.table(&[nasty, nasty, nasty], &[vec![nasty.into(); 3], vec![nasty.into(); 2]]);
        page.table(&[], &[vec![nasty.into(); 2]]);
        let html = page.end();
        assert!(!html.contains("<script") && html.contains("&lt;script&gt;"), "{html}");
        assert!(!html.contains("http://") && !html.contains("https://"), "a page loads nothing");
    }

    #[test]
    fn a_page_says_when_and_by_which_version_it_was_written() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_792_000_000);
        let html = Page::written("infeed run", "DIR", at).end();
        let line = format!("2026-10-14 17:46 UTC · infeed {}", env!("CARGO_PKG_VERSION"));
        assert!(html.contains(&line), "{html}");
    }

    #[test]
    fn few_rows_become_cards_on_a_phone_and_many_scroll_in_their_box() {
        let table = |rows: usize| Page::new("", "").table(&["", "busy"], &vec![vec!["a".into(); 2]; rows]).0.clone();
        assert!(table(3).contains("class=\"cards\"") && table(3).contains("data-label=\"busy\""));
        assert!(table(40).contains("class=\"long\""));
        assert!(!table(0).contains("<table"));
        // An error takes the place of all figures behind it.
        let mut page = Page::new("", "");
        page.table(&["", "busy", "items"], &[vec!["a".into(), "no such file".into()]]);
        assert!(page.0.contains("colspan=\"2\">no such file"), "{}", page.0);
    }
}
