//! What clinch and its guardian say to each other: one line of JSON each.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// From clinch to the guardian. Moments are nanoseconds of the boot clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Start the command, with these variables set or removed.
    Start {
        env: Vec<(String, Option<String>)>,
        /// It gets the terminal.
        lend: bool,
    },
    /// Nothing of the job may run after this moment, unless another order moves it.
    Until(u64),
    /// Send the job's group this signal.
    Signal(i32),
    /// End everything that the job has started: TERM at the first moment, KILL at the second.
    End { term_at: u64, kill_at: u64 },
    /// The job has ended; what it left behind may stay.
    Leave,
}

/// From the guardian to clinch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    /// The command runs, with this process id and group.
    Started(i32),
    /// It could not be started; the system's error number.
    NotStarted(i32),
    /// It was not started: the moment by which it must be gone has passed, or its end is ordered.
    TooLate,
    /// It was stopped by this signal.
    Stopped(i32),
    /// It has ended.
    Ended {
        status: Status,
        /// Nothing that it started is left.
        alone: bool,
        /// Its time was up: the guardian has killed it.
        overdue: bool,
    },
    /// After [`Order::End`]: nothing is left, but what is out of reach.
    Gone {
        /// How many got the first signal.
        ended: usize,
        /// How many could not be sent any.
        denied: usize,
    },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Status {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Nobody knows: the status was taken away.
    Unknown,
}

impl Status {
    /// As a shell says it.
    pub(super) fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => crate::failure::exit::SIGNAL + signal,
            Self::Unknown => crate::failure::exit::INTERNAL,
        }
    }
}

/// Writes one message.
pub(super) fn send(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Takes the first whole message out of what has been read.
pub(super) fn take<T: DeserializeOwned>(buffer: &mut Vec<u8>) -> Option<T> {
    let end = buffer.iter().position(|byte| *byte == b'\n')?;
    let line: Vec<u8> = buffer.drain(..=end).collect();
    // Both ends are one program: what cannot be read was not written.
    serde_json::from_slice(&line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_in_pieces() {
        let order = Order::Start {
            env: vec![("A".into(), Some("x\ny".into())), ("B".into(), None)],
            lend: true,
        };
        let mut whole = serde_json::to_vec(&order).unwrap();
        whole.push(b'\n');
        let (first, rest) = whole.split_at(7);
        let mut buffer = first.to_vec();
        assert_eq!(take::<Order>(&mut buffer), None);
        buffer.extend_from_slice(rest);
        assert_eq!(take::<Order>(&mut buffer), Some(order));
        assert!(buffer.is_empty());
    }
}
