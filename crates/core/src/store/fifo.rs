//! The order of claims that stand in one queue.
//!
//! Some engines keep each claim of a name as an entry of its own, in order of arrival (etcd: keys by
//! create revision; ZooKeeper: nodes by zxid). They write nothing when a claim is granted: who holds
//! follows from the queue. This is that rule, shared by all of them.

/// What one claim takes of its name.
///
/// ```
/// use clinch_core::store::fifo::{Place, holders};
/// let reader = Place { units: 1, limit: u32::MAX };
/// let writer = Place { units: u32::MAX, limit: u32::MAX };
/// assert_eq!(holders(0, [reader, reader, writer, reader]), 2); // the last waits behind the writer
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Units that it takes of the name's capacity.
    pub units: u32,
    /// The capacity that it claims with.
    pub limit: u32,
}

impl Place {
    /// An exclusive claim, as clients of other libraries make it.
    pub const EXCLUSIVE: Self = Self { units: 1, limit: 1 };
}

/// The number of claims at the front of the queue that hold: each one fits into what the claims
/// before it leave free.
///
/// `taken` are units outside the queue: those of a lock-delay. Each claim counts the units of all
/// claims before it, waiting ones included. So no claim overtakes another, and a holder stays a holder
/// when claims arrive behind it or leave before it.
///
/// ```
/// use clinch_core::store::fifo::{Place, holders};
/// let of = |units| Place { units, limit: 3 };
/// assert_eq!(holders(0, [of(2), of(2), of(1)]), 1); // the third would fit, and must not overtake
/// assert_eq!(holders(0, [of(2), of(1)]), 2);
/// assert_eq!(holders(2, [of(2)]), 0); // a lock-delay
/// ```
pub fn holders(taken: u64, queue: impl IntoIterator<Item = Place>) -> usize {
    let mut taken = taken;
    queue
        .into_iter()
        .take_while(|place| {
            taken = taken.saturating_add(place.units.into());
            taken <= u64::from(place.limit)
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(units: u32, limit: u32) -> Place {
        Place { units, limit }
    }

    #[test]
    fn a_mutex_has_one_holder() {
        assert_eq!(holders(0, []), 0);
        assert_eq!(holders(0, [Place::EXCLUSIVE]), 1);
        assert_eq!(holders(0, [Place::EXCLUSIVE; 5]), 1);
        assert_eq!(holders(1, [Place::EXCLUSIVE; 5]), 0);
    }

    #[test]
    fn no_claim_overtakes() {
        assert_eq!(holders(0, [of(3, 4), of(2, 4), of(1, 4)]), 1);
        assert_eq!(holders(0, [of(1, 4), of(2, 4), of(1, 4), of(1, 4)]), 3);
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let (reader, writer) = (of(1, u32::MAX), of(u32::MAX, u32::MAX));
        assert_eq!(holders(0, [reader, reader, reader]), 3);
        assert_eq!(holders(0, [reader, writer, reader]), 1);
        assert_eq!(holders(0, [writer, writer]), 1);
        assert_eq!(holders(1, [writer]), 0);
        assert_eq!(holders(1, [reader]), 1);
    }

    #[test]
    fn a_holder_stays_a_holder() {
        let queue = [of(2, 5), of(1, 5), of(2, 5), of(1, 5), of(3, 5)];
        let held = holders(0, queue);
        assert_eq!(held, 3);
        for gone in 0..queue.len() {
            let mut left = queue.to_vec();
            let units = left.remove(gone).units;
            let stay = held - usize::from(gone < held);
            assert!(holders(0, left.iter().copied()) >= stay);
            // The same when its units stay taken.
            let delayed = if gone < held { units } else { 0 };
            assert_eq!(holders(delayed.into(), left.iter().copied()), stay);
        }
    }
}
