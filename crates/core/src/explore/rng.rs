//! A small random generator (SplitMix64) with the same sequence for the same seed on every machine.

#[derive(Debug, Clone, Default)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        // Adjacent seeds must not give similar runs.
        let mut rng = Self(seed ^ 0x5851_f42d_4c95_7f2d);
        rng.next();
        rng
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        match u64::try_from(bound) {
            Ok(bound) if bound > 0 => usize::try_from(self.next() % bound).unwrap_or(0),
            _ => 0,
        }
    }

    /// `true` with this probability, in per mille.
    pub(super) fn chance(&mut self, per_mille: usize) -> bool {
        self.below(1000) < per_mille
    }

    pub(super) fn pick<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.below(options.len())]
    }
}
