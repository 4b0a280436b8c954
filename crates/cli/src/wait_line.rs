//! What a waiting command says: who has the lock, for how long, and how many are ahead.

use std::cell::Cell;
use std::convert::Infallible;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use clinch::store::{LockView, PartyView};
use clinch::{Clinch, Name};
use unicode_width::UnicodeWidthChar as _;

use crate::context::Context;
use crate::output::{age, complain, plain};

/// A line on standard error, kept up to date on a terminal, said once elsewhere.
#[derive(Debug)]
pub(crate) struct WaitLine<'a> {
    clinch: &'a Clinch,
    name: &'a Name,
    silent: bool,
    live: bool,
    shown: Cell<bool>,
}

impl<'a> WaitLine<'a> {
    pub(crate) fn new(context: &Context, clinch: &'a Clinch, name: &'a Name) -> Self {
        Self {
            clinch,
            name,
            silent: context.quiet || context.json,
            live: std::io::stderr().is_terminal(),
            shown: Cell::new(false),
        }
    }

    /// Shows the line for as long as it is polled.
    pub(crate) async fn follow(&self) -> Infallible {
        if self.silent {
            return std::future::pending().await;
        }
        let second = Duration::from_secs(1);
        let mut pause = if self.live { second / 4 } else { second };
        loop {
            self.clinch.clock().sleep(pause).await;
            pause = second;
            // Waiting goes on when the store does not answer; the claim itself will say so.
            let text = match self.clinch.inspect(self.name.as_str()).await {
                Ok(view) => self.text(view.as_ref()),
                Err(_) => format!("waiting for {}: the store does not answer", self.name),
            };
            let text = plain(&text);
            if !self.live {
                complain(&format!("clinch: {text}"));
                return std::future::pending().await;
            }
            self.draw(&text);
        }
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        if self.shown.replace(false) {
            let _ = std::io::stderr().lock().write_all(b"\r\x1b[K");
        }
    }

    fn draw(&self, text: &str) {
        let columns = match rustix::termios::tcgetwinsize(rustix::stdio::stderr()) {
            Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
            _ => 80,
        };
        let text = cut(text, columns.saturating_sub(1));
        let _ = std::io::stderr()
            .lock()
            .write_all(format!("\r\x1b[K{text}").as_bytes());
        self.shown.set(true);
    }

    fn text(&self, view: Option<&LockView>) -> String {
        let mut text = format!("waiting for {}", self.name);
        let Some(view) = view else {
            return plain(&text).into_owned();
        };
        if let Some(why) = why_taken(view) {
            text += &format!(": {why}");
        }
        let me = self.clinch.client_id();
        match view.waiters.iter().position(|waiter| waiter.client == me) {
            Some(0) if view.waiters.len() == 1 => text += "; next",
            Some(ahead) => {
                text += &format!("; {} of {} in the queue", ahead + 1, view.waiters.len());
            }
            None => {}
        }
        plain(&text).into_owned()
    }
}

/// Why a lock cannot be had: who holds it, or whose lock-delay runs; `None` when neither.
pub(crate) fn why_taken(view: &LockView) -> Option<String> {
    let others = |count: usize| match count {
        0 | 1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    if let Some(first) = view.holders.first() {
        return Some(format!(
            "held by {}{}",
            who(first),
            others(view.holders.len())
        ));
    }
    // The first that ends makes room; of a mutex there is one.
    let first = view.delayed.iter().min_by_key(|party| party.lease_left)?;
    Some(format!("{}{}", delay(first), others(view.delayed.len())))
}

/// A lock-delay that runs, in a few words.
pub(crate) fn delay(party: &PartyView) -> String {
    let left = age(party.lease_left);
    format!(
        "free in {left}: lock-delay of {}{}",
        process(party),
        label(party)
    )
}

/// A holder in a few words, as far as the store knows it.
pub(crate) fn who(party: &PartyView) -> String {
    let since = match party.age {
        Duration::MAX => String::new(),
        span => format!(" for {}", age(span)),
    };
    format!("{}{}{since}", process(party), label(party))
}

fn label(party: &PartyView) -> String {
    let label = party.label.as_ref();
    label.map(|label| format!(" ({label})")).unwrap_or_default()
}

/// Where it runs; of another library's holder only what it calls itself is known.
pub(crate) fn process(party: &PartyView) -> String {
    match party.host.as_str() {
        "" => party.owner.to_string(),
        host => format!("{host}:{}", party.pid),
    }
}

/// As much of the text as fits the columns.
fn cut(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > columns {
            return text.get(..at).unwrap_or(text);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_never_wraps() {
        assert_eq!(cut("waiting", 4), "wait");
        assert_eq!(cut("日本語", 5), "日本");
        assert_eq!(cut("short", 80), "short");
    }
}
