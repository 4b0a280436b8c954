//! The scripts that run inside Redis.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Cmd;

/// A script and the name under which the server keeps it.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    hash: String,
}

/// Claims and what else changes locks.
pub(crate) static STEPS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("scripts/steps/general.lua"),
        include_str!("scripts/steps/main.lua"),
    ))
});
/// What an operator sees.
pub(crate) static VIEW: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/view.lua")));

impl Script {
    pub(crate) fn new(text: &'static str) -> Self {
        let hash = redis::Script::new(text).get_hash().to_owned();
        Self { text, hash }
    }

    /// Its name at the server.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// The command that brings it to the server.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.text);
        command
    }

    /// The call of a script that the server is expected to have.
    pub(crate) fn by_hash(&self, call: &Call, run: &str, asking: Asking) -> Cmd {
        call.command("EVALSHA", &self.hash, run, asking)
    }

    /// The call that brings the script along, after a restart or a failover.
    pub(crate) fn by_text(&self, call: &Call, run: &str, asking: Asking) -> Cmd {
        call.command("EVAL", self.text, run, asking)
    }
}

/// On a cluster: whether another server has sent us on, because the slot is on its way, and the highest number
/// of the slot at that server, 0 if it has none.
pub(crate) type Asking = Option<u64>;

/// One call of a script.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static LazyLock<Script>,
    /// All in one slot of a cluster.
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<Vec<u8>>,
    /// The argument that the id of the server's run takes the place of, in strict mode.
    pub(crate) run_at: Option<usize>,
    /// On a cluster: the argument that the highest number of a slot that moves takes the place of. The one before
    /// it is the key of that number.
    pub(crate) floor_at: Option<usize>,
    /// How many replicas must have what it changed.
    pub(crate) wait: u32,
    /// How long its reply is waited for, if not as long as any other.
    pub(crate) limit: Option<Duration>,
}

impl Call {
    /// The key by which its server is found.
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
