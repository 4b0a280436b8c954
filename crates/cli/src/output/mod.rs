//! What commands print: lines, aligned tables and JSON.

pub(crate) mod json;
mod paint;
mod table;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

pub(crate) use paint::{ColorChoice, Paint};
pub(crate) use table::Table;

/// Writes a line to standard output at once, so that a reader of a pipe sees it now.
pub(crate) fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes a value as one line of JSON.
pub(crate) fn json_line(value: &impl serde::Serialize) -> io::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// Writes a line to standard error. There is nobody to tell when that fails.
pub(crate) fn complain(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(format!("{text}\n").as_bytes());
}

/// Text of others made safe for a terminal: control characters are shown escaped.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// An age as people read it in a column: `12s`, `3m12s`, `2h05m`, `3d04h`.
pub(crate) fn age(span: Duration) -> String {
    if span == Duration::MAX {
        return "without end".to_owned();
    }
    let secs = span.as_secs();
    let mut out = String::new();
    let _ = match secs {
        86_400.. => write!(out, "{}d{:02}h", secs / 86_400, secs % 86_400 / 3600),
        3600.. => write!(out, "{}h{:02}m", secs / 3600, secs % 3600 / 60),
        60.. => write!(out, "{}m{:02}s", secs / 60, secs % 60),
        1.. => write!(out, "{secs}s"),
        0 => write!(out, "{}ms", span.as_millis()),
    };
    out
}

/// Milliseconds, as JSON has them.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read_at_a_glance() {
        let read = |secs| age(Duration::from_secs(secs));
        assert_eq!(read(12), "12s");
        assert_eq!(read(192), "3m12s");
        assert_eq!(read(7500), "2h05m");
        assert_eq!(read(90_000), "1d01h");
        assert_eq!(age(Duration::from_millis(40)), "40ms");
    }

    #[test]
    fn a_name_cannot_drive_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(plain("grün/1"), "grün/1");
    }
}
