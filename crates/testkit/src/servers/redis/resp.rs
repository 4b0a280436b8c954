//! A small blocking client for the kit's own commands.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Limit for each reply.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A server's reply.
///
/// It is displayed as `redis-cli` prints it to a pipe: nothing for "no value", a line for each
/// element of a list.
///
/// ```
/// use clinch_testkit::servers::{Redis, Reply};
/// let redis = Redis::start()?;
/// assert_eq!(redis.command(&["INCR", "n"])?, Reply::Number(1));
/// assert_eq!(redis.command(&["GET", "n"])?, Reply::Text("1".to_owned()));
/// assert_eq!(redis.command(&["GET", "m"])?, Reply::Nil);
/// assert_eq!(redis.command(&["MGET", "n", "m"])?.to_string(), "1\n");
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// No value.
    Nil,
    /// A number.
    Number(i64),
    /// A status or a string; bytes that are not UTF-8 are replaced.
    Text(String),
    /// An error inside a list; elsewhere an error reply is an error of the call.
    Refused(String),
    /// A list.
    List(Vec<Reply>),
}

impl Reply {
    /// The elements of a list; empty for any other reply.
    pub fn list(self) -> Vec<Reply> {
        match self {
            Self::List(items) => items,
            _ => Vec::new(),
        }
    }

    /// The elements of a list as text.
    pub fn texts(self) -> Vec<String> {
        self.list().iter().map(Self::to_string).collect()
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => Ok(()),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) | Self::Refused(text) => f.write_str(text),
            Self::List(items) => {
                for (i, item) in items.iter().enumerate() {
                    let gap = if i == 0 { "" } else { "\n" };
                    write!(f, "{gap}{item}")?;
                }
                Ok(())
            }
        }
    }
}

/// A connection through a server's socket file: it needs no TLS and no port.
#[derive(Debug)]
pub(super) struct Client(BufReader<UnixStream>);

impl Client {
    pub(super) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command and waits for its reply.
    pub(super) fn call(&mut self, args: &[&str]) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", args.len());
        for arg in args {
            request += &format!("${}\r\n{arg}\r\n", arg.len());
        }
        self.0.get_mut().write_all(request.as_bytes())?;
        self.reply()
    }

    /// The next reply.
    pub(super) fn reply(&mut self) -> io::Result<Reply> {
        let mut line = Vec::new();
        if self.0.read_until(b'\n', &mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&line);
        let mut chars = line.trim_end_matches(['\r', '\n']).chars();
        let (kind, rest) = (chars.next(), chars.as_str());
        match kind {
            Some('+') => Ok(Reply::Text(rest.to_owned())),
            Some('-') => Ok(Reply::Refused(rest.to_owned())),
            Some(':') => Ok(Reply::Number(number(rest)?)),
            Some('$') => match usize::try_from(number(rest)?) {
                Err(_) => Ok(Reply::Nil),
                Ok(length) => {
                    let mut text = vec![0; length + 2];
                    self.0.read_exact(&mut text)?;
                    text.truncate(length);
                    Ok(Reply::Text(String::from_utf8_lossy(&text).into_owned()))
                }
            },
            Some('*') => match usize::try_from(number(rest)?) {
                Err(_) => Ok(Reply::Nil),
                Ok(length) => {
                    let items: io::Result<_> = (0..length).map(|_| self.reply()).collect();
                    items.map(Reply::List)
                }
            },
            _ => Err(io::Error::other(format!("not a reply: {line:?}"))),
        }
    }
}

fn number(text: &str) -> io::Result<i64> {
    text.parse()
        .map_err(|_| io::Error::other(format!("not a number: {text:?}")))
}
