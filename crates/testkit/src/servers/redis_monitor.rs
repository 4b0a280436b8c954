//! Counting what clients send.

use std::io;

use super::resp::{Client, Reply};

/// Marks the place in the stream up to which is counted.
const MARK: &str = "clinch-testkit-mark";

/// A connection that is told every command, in the order in which the server ran them.
///
/// It names the sender of each, so commands inside scripts (`lua`) and the kit's own, which come
/// through the socket file, are known. INFO commandstats adds all of these up under one name.
#[derive(Debug)]
pub(super) struct Monitor {
    stream: Client,
    marks: u64,
    count: u64,
    /// Whether what comes through the socket file is a client's.
    count_unix: bool,
}

impl Monitor {
    pub(super) fn new(mut stream: Client, count_unix: bool, count: u64) -> io::Result<Self> {
        match stream.call(&["MONITOR"])? {
            Reply::Text(_) => Ok(Self {
                stream,
                marks: 0,
                count,
                count_unix,
            }),
            other => Err(io::Error::other(other.to_string())),
        }
    }

    /// How many there were up to the last reading.
    pub(super) fn last(&self) -> u64 {
        self.count
    }

    /// How many there were so far. Every command whose reply was seen by anybody is among them: the
    /// mark that is sent now is told of after them.
    pub(super) fn count(&mut self, mut control: Client) -> io::Result<u64> {
        self.marks += 1;
        let mark = format!("{MARK}-{}", self.marks);
        control.call(&["ECHO", &mark])?;
        let mark = format!("\"{mark}\"");
        loop {
            let line = self.stream.reply()?.to_string();
            if line.ends_with(&mark) {
                return Ok(self.count);
            }
            if is_clients(&line, self.count_unix) {
                self.count += 1;
            }
        }
    }
}

/// Whether a line such as `1700000000.123456 [0 127.0.0.1:5555] "GET" "a"` is about a client.
fn is_clients(line: &str, count_unix: bool) -> bool {
    let sender = line
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(' '))
        .map(|(_, sender)| sender);
    match sender {
        Some(sender) if sender.starts_with("lua]") => false,
        Some(sender) if sender.starts_with("unix:") => count_unix && !line.contains(MARK),
        Some(_) => true,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_told_apart() {
        let counted = |sender: &str| is_clients(&format!("1.5 [0 {sender}] \"GET\" \"a\""), false);
        assert!(counted("127.0.0.1:5555"));
        assert!(!counted("lua"));
        assert!(!counted("unix:/tmp/socket"));
        assert!(is_clients("1.5 [0 unix:/tmp/socket] \"GET\" \"a\"", true));
    }
}
