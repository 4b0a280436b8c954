//! The scripts that run inside Redis, and their calls.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Cmd;

use crate::record;

/// A script and its hash, by which the server keeps it.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    hash: String,
}

/// The steps of locks.
pub(crate) static STEPS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(record::fill(concat!(
        include_str!("scripts/slow_path/state.lua"),
        include_str!("scripts/slow_path/queue.lua"),
        include_str!("scripts/slow_path/steps.lua"),
        include_str!("scripts/fast_path.lua"),
    )))
});
/// Views of locks for operators.
pub(crate) static VIEW: LazyLock<Script> =
    LazyLock::new(|| Script::new(record::fill(include_str!("scripts/view.lua"))));

impl Script {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// Its hash at the server.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// The command that loads it at the server.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }

    /// The call of a script that the server is expected to have.
    pub(crate) fn by_hash(&self, call: &Call, run: &str, asking: Asking) -> Cmd {
        call.command("EVALSHA", &self.hash, run, asking)
    }

    /// The call with the text, for a server that does not have it after a restart or a failover.
    pub(crate) fn by_text(&self, call: &Call, run: &str, asking: Asking) -> Cmd {
        call.command("EVAL", &self.text, run, asking)
    }
}

/// On a cluster: set if another server has redirected us because the slot is moving, to the highest number
/// of the slot at that server, 0 if it has none.
pub(crate) type Asking = Option<u64>;

/// One call of a script.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static LazyLock<Script>,
    /// All in one slot of a cluster.
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<Vec<u8>>,
    /// Strict mode: the argument that is replaced by the run id of the server.
    pub(crate) run_at: Option<usize>,
    /// On a cluster: the argument that is replaced by the highest number of a slot that is moving. The one
    /// before it is the key of that number.
    pub(crate) floor_at: Option<usize>,
    /// How many replicas must have its changes.
    pub(crate) wait: u32,
    /// How long its reply is awaited, if shorter than the timeout.
    pub(crate) limit: Option<Duration>,
}

impl Call {
    /// A call without settings of its own.
    pub(crate) fn new(
        script: &'static LazyLock<Script>,
        keys: Vec<String>,
        args: Vec<Vec<u8>>,
    ) -> Self {
        Self {
            script,
            keys,
            args,
            run_at: None,
            floor_at: None,
            wait: 0,
            limit: None,
        }
    }

    /// The key that decides its server.
    pub(crate) fn key(&self) -> &str {
        self.keys.first().map(String::as_str).unwrap_or_default()
    }

    /// The key of the highest number of its slot, on a cluster.
    pub(crate) fn highest(&self) -> Option<&str> {
        let key = self.args.get(self.floor_at?.checked_sub(1)?)?;
        std::str::from_utf8(key).ok().filter(|key| !key.is_empty())
    }

    fn command(&self, verb: &str, script: &str, run: &str, asking: Asking) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key);
        }
        for (at, arg) in self.args.iter().enumerate() {
            match asking {
                _ if self.run_at == Some(at) => command.arg(run),
                Some(floor) if self.floor_at == Some(at) => command.arg(floor),
                _ => command.arg(arg.as_slice()),
            };
        }
        command
    }
}

#[cfg(test)]
mod tests;
