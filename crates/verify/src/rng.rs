//! Numbers from a seed: the same seed gives the same schedule of faults.

/// A small generator (splitmix64). Not for secrets.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A stream of its own for each purpose of one seed.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut rng = Self(seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A number from `from` to `until`, both included.
    pub(crate) fn between(&mut self, from: u64, until: u64) -> u64 {
        from + self.below(until.saturating_sub(from) + 1)
    }

    /// True in one case of so many.
    pub(crate) fn one_in(&mut self, cases: u64) -> bool {
        self.below(cases) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence() {
        let numbers = |seed, purpose| {
            let mut rng = Rng::new(seed, purpose);
            [(); 8].map(|()| rng.between(10, 20))
        };
        assert_eq!(numbers(1, 1), numbers(1, 1));
        assert_ne!(numbers(1, 1), numbers(2, 1));
        assert_ne!(numbers(1, 1), numbers(1, 2));
        assert!(numbers(3, 3).iter().all(|n| (10..=20).contains(n)));
    }
}
