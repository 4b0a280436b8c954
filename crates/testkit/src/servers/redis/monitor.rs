//! Counting what clients send.

use std::io;

use super::resp::{Client, Reply};

/// Marks the position in the stream up to which commands are counted.
const MARK: &str = "clinch-testkit-mark";

/// A connection that receives every command, in the order in which the server ran them.
///
/// Each line names the sender, which tells clients from scripts (`lua`) and from the kit, whose
/// commands come through the socket file. INFO commandstats does not.
#[derive(Debug)]
pub(super) struct Monitor {
    stream: Client,
    marks: u64,
    count: u64,
    /// Whether commands that come through the socket file count.
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

    /// The count at the last reading.
    pub(super) fn last(&self) -> u64 {
        self.count
    }

    /// The count so far. It includes every command that has been answered: the mark that is sent now
    /// comes after them in the stream.
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

/// Whether a line such as `1700000000.123456 [0 127.0.0.1:5555] "GET" "a"` is a client's command.
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
    fn senders_are_distinguished() {
        let counted = |sender: &str| is_clients(&format!("1.5 [0 {sender}] \"GET\" \"a\""), false);
        assert!(counted("127.0.0.1:5555"));
        assert!(!counted("lua"));
        assert!(!counted("unix:/tmp/socket"));
        assert!(is_clients("1.5 [0 unix:/tmp/socket] \"GET\" \"a\"", true));
    }
}
