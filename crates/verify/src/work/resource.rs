//! The protected resources, as a worker process uses them: over a socket of the coordinator.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One use of a resource.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Use {
    pub(crate) resource: String,
    pub(crate) fenced: bool,
    pub(crate) write: bool,
    pub(crate) op: u64,
    pub(crate) token: u64,
    /// What a write is based on; it sets the next number.
    pub(crate) value: u64,
}

/// A connection to the resources. It blocks: they answer at once.
#[derive(Debug)]
pub(crate) struct Resource {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Resource {
    pub(crate) fn connect(path: &Path) -> std::io::Result<Self> {
        let writer = UnixStream::connect(path)?;
        let reader = BufReader::new(writer.try_clone()?);
        Ok(Self { reader, writer })
    }

    /// Whether it was accepted, and the value there is.
    pub(crate) fn access(&mut self, using: &Use) -> std::io::Result<(bool, u64)> {
        let mut line = serde_json::to_vec(using)?;
        line.push(b'\n');
        self.writer.write_all(&line)?;
        let mut reply = String::new();
        self.reader.read_line(&mut reply)?;
        Ok(serde_json::from_str(&reply)?)
    }
}
