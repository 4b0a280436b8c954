//! The names of a toy store, and the file that keeps them.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::machine::codec::{Decoder, Encoder};
use clinch_core::machine::{NameState, Outcome, Sequence};
use clinch_core::store::{Claim, ClaimReply, LockView};
use clinch_core::{BootTime, ClientId, Error, ErrorKind, Name, Result, sequence_micros};

/// Attempts to lock the file, one in a millisecond.
const LOCK_ATTEMPTS: u32 = 1000;

/// A name within its namespace.
type Key = (Arc<str>, Name);

/// What a step of one name works with.
pub(super) struct Step<'a> {
    pub(super) name: &'a mut NameState,
    pub(super) now: BootTime,
    pub(super) sequence: &'a mut dyn Sequence,
    pub(super) out: &'a mut Outcome,
}

/// A table in a file, changed under an exclusive lock of a second file.
#[derive(Debug, Clone)]
pub(super) struct TableFile {
    path: PathBuf,
}

impl TableFile {
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let file = Self { path };
        file.change(|_| ())?;
        Ok(file)
    }

    /// Applies one atomic change: the new table replaces the old one by a rename.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> Result<T> {
        // Closing the file releases the lock.
        let _lock = self.lock().map_err(failed)?;
        let mut table = self.read()?;
        let reply = change(&mut table);
        let new = self.path.with_extension("new");
        fs::write(&new, table.encode()).map_err(failed)?;
        fs::rename(&new, &self.path).map_err(failed)?;
        Ok(reply)
    }

    /// Differs after each change: a rename puts another file in its place.
    pub(super) fn version(&self) -> Option<(u64, i64)> {
        let meta = fs::metadata(&self.path).ok()?;
        Some((meta.ino(), meta.mtime_nsec()))
    }

    /// Whether a claim holds its name.
    pub(super) fn is_granted(&self, namespace: &Arc<str>, claim: &Claim, now: BootTime) -> bool {
        let Ok(table) = self.read() else { return true };
        let state = table.names.get(&(namespace.clone(), claim.name.clone()));
        let reply = state.map(|state| state.standing(claim.request, now));
        matches!(reply, Some(ClaimReply::Granted(_)))
    }

    fn read(&self) -> Result<Table> {
        let bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            bytes => bytes.map_err(failed)?,
        };
        Table::decode(&bytes)
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "the file of locks is not readable"))
    }

    fn lock(&self) -> io::Result<File> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(self.path.with_extension("lock"))?;
        // A process that was stopped inside a step keeps the lock: no call may wait for it for ever.
        for _ in 0..LOCK_ATTEMPTS {
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
                locked => return locked.map(|()| file).map_err(io::Error::from),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

fn failed(error: io::Error) -> Error {
    // Nothing is visible before the rename, so a failed step changed nothing.
    Error::new(
        ErrorKind::Unreachable,
        format!("the file of locks: {error}"),
    )
}

/// All names, and the greatest sequence number so far.
#[derive(Debug, Default)]
pub(super) struct Table {
    watermark: Watermark,
    names: BTreeMap<Key, NameState>,
}

#[derive(Debug, Default)]
struct Watermark(u64);

impl Sequence for Watermark {
    fn next(&mut self, after: u64) -> u64 {
        // The clock keeps tokens rising after the file was removed.
        self.0 = sequence_micros().max(self.0 + 1).max(after + 1);
        self.0
    }
}

impl Table {
    /// Applies a step to a name. What it grants to others is not delivered: waiters look at the file.
    pub(super) fn step<T>(
        &mut self,
        namespace: &Arc<str>,
        name: &Name,
        now: BootTime,
        step: impl FnOnce(Step<'_>) -> T,
    ) -> T {
        let new = || NameState::new(name.clone());
        let key = (namespace.clone(), name.clone());
        step(Step {
            name: self.names.entry(key).or_insert_with(new),
            now,
            sequence: &mut self.watermark,
            out: &mut Outcome::default(),
        })
    }

    pub(super) fn end_client(&mut self, client: ClientId, now: BootTime) {
        for state in self.names.values_mut() {
            state.client_died(client, now, &mut self.watermark, &mut Outcome::default());
        }
    }

    pub(super) fn views(&self, namespace: &str, prefix: &str, now: BootTime) -> Vec<LockView> {
        let meant = |(of, name): &Key| &**of == namespace && name.as_str().starts_with(prefix);
        let names = self.names.iter().filter(|(key, _)| meant(key));
        names.filter_map(|(_, state)| state.view(now)).collect()
    }

    fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::new();
        encoder.number(self.watermark.0);
        for ((namespace, name), state) in &self.names {
            if state.entries.is_empty() && state.ended.is_empty() {
                continue;
            }
            encoder.text(namespace);
            encoder.text(name.as_str());
            encoder.number(state.last_seq);
            encoder.number(state.entries.len() as u64);
            state.entries.iter().for_each(|entry| encoder.entry(entry));
            encoder.number(state.ended.len() as u64);
            state.ended.iter().for_each(|ended| encoder.ended(ended));
        }
        encoder.finish()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut table = Self::default();
        let mut decoder = Decoder::new(bytes);
        if decoder.is_empty() {
            return Some(table);
        }
        table.watermark = Watermark(decoder.number()?);
        while !decoder.is_empty() {
            let namespace = Arc::from(decoder.text()?);
            let mut state = NameState::new(Name::new(decoder.text()?).ok()?);
            state.last_seq = decoder.number()?;
            for _ in 0..decoder.number()? {
                state.entries.push(decoder.entry()?);
            }
            for _ in 0..decoder.number()? {
                state.ended.push(decoder.ended()?);
            }
            table.names.insert((namespace, state.name.clone()), state);
        }
        Some(table)
    }
}
