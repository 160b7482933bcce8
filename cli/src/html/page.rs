//! A page and its parts: headings, words, tables, pictures.

use std::fmt::Write as _;

use infeed::internal::printable;

use crate::{invocation, process};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1c1a;--soft:#6b6b66;--line:#d9d8d2;--paper:#fdfdfb;--card:#f4f3ee;--good:#1b7f4d}\
@media(prefers-color-scheme:dark){:root{--ink:#e9e8e3;--soft:#a2a19a;--line:#3a3a37;--paper:#161615;--card:#20201e;--good:#5fc08d}}\
*{box-sizing:border-box}body{margin:0 auto;max-width:72rem;padding:1.2rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink);\
background:var(--paper);overflow-wrap:anywhere}h1{font-size:1.5rem;margin:.2em 0}h2{font-size:1.1rem;margin:1.8em 0 .4em}\
p{margin:.4em 0}.soft{color:var(--soft)}.verdict{background:var(--card);border-left:.3rem solid var(--good);padding:.7rem 1rem;margin:1rem 0}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}\
th,td{text-align:right;padding:.22rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}\
th:first-child,td:first-child{text-align:left}td.words{white-space:normal;text-align:left}th{color:var(--soft);font-weight:600}\
figure{margin:.6rem 0}svg{height:auto;display:block}svg text{fill:var(--ink);font-family:system-ui,sans-serif}\
svg [stroke=\"#000000\"]{stroke:var(--soft)}code{font-size:.9em;background:var(--card);padding:.1em .3em}\
@page{margin:15mm}@media print{body{max-width:none;padding:0}h2{break-after:avoid}figure,table,.verdict{break-inside:avoid}.wide{overflow:visible}}";

/// Text in the place of markup.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // What turns directions would turn the page's own words.
            c if printable::is_order(c) && !c.is_control() => out.extend(c.escape_default()),
            // No document may hold them.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A page that is put together from its parts.
pub(crate) struct Page(String);

impl Page {
    pub(crate) fn new(title: &str, about: &str) -> Self {
        let (title, about) = (escape(title), escape(about));
        let mut text = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}</title>\
             <style>{STYLE}</style></head>\n<body><h1>{title}</h1><p class=\"soft\">{about}</p>\n"
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

    pub(crate) fn verdict(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.0, "<p class=\"verdict\">{}</p>", escape(text));
        self
    }

    /// Columns of figures; the first holds names.
    pub(crate) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> &mut Self {
        self.0.push_str("<div class=\"wide\"><table>");
        if !head.is_empty() {
            let cells: String = head.iter().map(|cell| format!("<th>{}</th>", escape(cell))).collect();
            let _ = write!(self.0, "<thead><tr>{cells}</tr></thead>");
        }
        for row in rows {
            let class = if head.is_empty() { " class=\"words\"" } else { "" };
            let cells = row.iter().enumerate().map(|(i, cell)| match i {
                0 => format!("<td>{}</td>", escape(cell)),
                _ => format!("<td{class}>{}</td>", escape(cell)),
            });
            let _ = write!(self.0, "<tr>{}</tr>", cells.collect::<String>());
        }
        self.0.push_str("</table></div>\n");
        self
    }

    /// A picture, if there is one to show.
    pub(crate) fn figure(&mut self, svg: Option<String>) -> &mut Self {
        if let Some(svg) = svg {
            let _ = writeln!(self.0, "<figure class=\"wide\">{svg}</figure>");
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
    use super::*;

    #[test]
    fn nothing_of_the_data_becomes_markup() {
        let nasty = "<script>alert('x')</script>&\"\u{1}";
        assert_eq!(escape(nasty), "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;\u{fffd}");
        let mut page = Page::new(nasty, nasty);
        page.heading(nasty).words(nasty).verdict(nasty);
        page.table(&[nasty, nasty], &[vec![nasty.into(), nasty.into()]]);
        let html = page.end();
        assert!(!html.contains("<script") && html.contains("&lt;script&gt;"), "{html}");
        assert!(!html.contains("http://") && !html.contains("https://"), "a page loads nothing");
    }
}
