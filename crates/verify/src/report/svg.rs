//! Just enough to draw.

use std::fmt::Write as _;

/// A picture that grows.
#[derive(Debug)]
pub(super) struct Svg {
    body: String,
    width: f64,
    height: f64,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self {
            body: String::new(),
            width,
            height,
        }
    }

    /// A box, with words that show when it is pointed at.
    pub(super) fn rect(&mut self, (x, y, w, h): (f64, f64, f64, f64), style: &str, title: &str) {
        let title = escape(title);
        let _ = writeln!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{w:.1}" height="{h:.1}" {style}><title>{title}</title></rect>"#,
            w = w.max(1.0),
        );
    }

    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str) {
        let _ = writeln!(
            self.body,
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" {style}/>"#,
        );
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), style: &str, words: &str) {
        let words = escape(words);
        let _ = writeln!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" {style}>{words}</text>"#
        );
    }

    pub(super) fn end(self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w:.0} {h:.0}\" width=\"{w:.0}\" height=\"{h:.0}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n",
            w = self.width,
            h = self.height,
            body = self.body,
        )
    }
}

/// Text that is safe inside markup.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

/// A stretch of time on a stretch of paper.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) left: f64,
    pub(super) width: f64,
}

impl Scale {
    /// Where a moment lies, cut at both ends.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a picture has a thousand points"
    )]
    pub(super) fn x(&self, at: u64) -> f64 {
        let span = self.until.saturating_sub(self.from).max(1) as f64;
        let since = at.clamp(self.from, self.until) - self.from;
        self.left + since as f64 / span * self.width
    }

    pub(super) fn shows(&self, from: u64, until: u64) -> bool {
        from <= self.until && until >= self.from
    }
}
