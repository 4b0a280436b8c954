//! Renewals without the database: a table in the session file.
//!
//! A process that is stopped in the middle of a transaction keeps all others from writing to the
//! database. Holds must not end because of that, so a client whose renewal cannot be written there
//! writes it into its own session file, which no other client writes. A client that is about to end
//! a hold whose lease is over reads that file first.
//!
//! Why no lock is granted while its holder counts it as held:
//!
//! - The holder writes the new end of the lease, and reads the clock *after* that. The renewal
//!   counts only if the old end had not come yet.
//! - A client that ends a hold reads the clock *before* it reads the table.
//! - So a reader that missed the new end has read the clock before the holder did, and found that
//!   the old end had not come.
//!
//! The table is written to two slots in turn, so that one of them is complete at any moment.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use clinch_core::{BootTime, RequestId};
use clinch_kit::hash::fnv1a;

/// Where the slots begin. A file that is not longer than this has never had a table.
pub(super) const START: u64 = 4096;
/// The size of each slot; unused parts take no space on the disk.
const SLOT: u64 = 1 << 20;
/// The bytes before the records: generation, count, checksum.
const HEAD: usize = 24;
/// The bytes of a record: request and end of the lease.
const RECORD: usize = 24;
/// The most records.
const MOST: usize = 43_000;
/// How often slots that are being written are read again.
const TRIES: u32 = 20;

/// The ends of leases that were renewed without the database.
#[derive(Debug, Default, Clone)]
pub(crate) struct RenewalTable {
    generation: u64,
    until: HashMap<RequestId, BootTime>,
}

impl RenewalTable {
    /// Until when this claim was renewed.
    pub(crate) fn until(&self, request: RequestId) -> Option<BootTime> {
        self.until.get(&request).copied()
    }

    /// Whether there are no renewals.
    pub(crate) fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    /// Adds renewals, and removes those that are over. `false` if there is no room.
    pub(crate) fn add(&mut self, renewed: &[(RequestId, BootTime)], now: BootTime) -> bool {
        self.until.retain(|_, until| *until > now);
        if self.until.len() + renewed.len() > MOST {
            return false;
        }
        self.until.extend(renewed.iter().copied());
        true
    }

    /// Writes the table to the slot of the one before the last.
    pub(crate) fn write(&mut self, file: &File) -> io::Result<()> {
        self.generation += 1;
        let mut records = Vec::with_capacity(self.until.len() * RECORD);
        for (request, until) in &self.until {
            records.extend_from_slice(&request.as_u128().to_le_bytes());
            records.extend_from_slice(&until.as_nanos().to_le_bytes());
        }
        let count = self.until.len() as u64;
        let sum = checksum(self.generation, count, &records);
        let mut bytes = Vec::with_capacity(HEAD + records.len());
        for number in [self.generation, count, sum] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.append(&mut records);
        file.write_all_at(&bytes, slot(self.generation))
    }

    /// The table of another client; `None` if both slots stay incomplete.
    pub(crate) fn read(file: &File) -> io::Result<Option<Self>> {
        for _ in 0..TRIES {
            match [read_at(file, slot(0))?, read_at(file, slot(1))?] {
                [Slot::Complete(a), Slot::Complete(b)] => {
                    let newest = if a.generation > b.generation { a } else { b };
                    return Ok(Some(newest));
                }
                // The other one is being written, or never was: its renewals do not count yet.
                [Slot::Complete(a), _] | [_, Slot::Complete(a)] => return Ok(Some(a)),
                [Slot::Empty, Slot::Empty] => return Ok(Some(Self::default())),
                // Both were written while they were read.
                _ => std::thread::yield_now(),
            }
        }
        Ok(None)
    }
}

fn slot(generation: u64) -> u64 {
    START + generation % 2 * SLOT
}

enum Slot {
    Empty,
    Torn,
    Complete(RenewalTable),
}

fn read_at(file: &File, at: u64) -> io::Result<Slot> {
    let mut head = [0; HEAD];
    let mut got = 0;
    while let Some(rest) = head.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + got as u64)? {
            0 => break,
            more => got += more,
        }
    }
    let number = |at: usize| {
        let bytes = head.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    };
    let (generation, count, sum) = (number(0), number(8), number(16));
    if generation == 0 {
        return Ok(Slot::Empty);
    }
    let Some(count) = usize::try_from(count).ok().filter(|count| *count <= MOST) else {
        return Ok(Slot::Torn);
    };
    let mut records = vec![0; count * RECORD];
    match file.read_exact_at(&mut records, at + HEAD as u64) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Slot::Torn),
        other => other?,
    }
    if checksum(generation, count as u64, &records) != sum {
        return Ok(Slot::Torn);
    }
    let until = records.chunks_exact(RECORD).filter_map(|record| {
        let (request, until) = record.split_at_checked(16)?;
        let request = u128::from_le_bytes(request.try_into().ok()?);
        let until = u64::from_le_bytes(until.try_into().ok()?);
        Some((RequestId::from_u128(request), BootTime::from_nanos(until)))
    });
    Ok(Slot::Complete(RenewalTable {
        generation,
        until: until.collect(),
    }))
}

/// Detects a table that was written in part.
fn checksum(generation: u64, count: u64, records: &[u8]) -> u64 {
    let numbers = generation
        .to_le_bytes()
        .into_iter()
        .chain(count.to_le_bytes());
    fnv1a(numbers.chain(records.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clinch_core::Identity;

    #[test]
    fn a_table_written_in_part_leaves_the_one_before_it() {
        let path = std::env::temp_dir().join(format!("clinch-renewals-{}", std::process::id()));
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(RenewalTable::read(&file).unwrap().unwrap().is_empty());
        let (identity, mut table) = (Identity::new(), RenewalTable::default());
        let (a, b) = (identity.request(), identity.request());
        let at = BootTime::from_nanos;
        for round in 1..5 {
            assert!(table.add(&[(a, at(100 * round))], at(0)));
            table.write(&file).unwrap();
            let read = RenewalTable::read(&file).unwrap().unwrap();
            assert_eq!(read.until(a), Some(at(100 * round)));
        }
        assert!(table.add(&[(b, at(900))], at(400)));
        table.write(&file).unwrap();
        let read = RenewalTable::read(&file).unwrap().unwrap();
        assert_eq!((read.until(a), read.until(b)), (None, Some(at(900))));
        // The last one is torn: the one before it counts.
        file.write_all_at(&[7], slot(table.generation) + 30)
            .unwrap();
        let read = RenewalTable::read(&file).unwrap().unwrap();
        assert_eq!((read.until(a), read.until(b)), (Some(at(400)), None));
        file.write_all_at(&[7], slot(table.generation + 1) + 30)
            .unwrap();
        assert!(RenewalTable::read(&file).unwrap().is_none());
    }
}
