//! A hash that is the same in every process, build and version.
//!
//! For names and checksums that other processes read. It resists accidents and no attacker.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// 64-bit FNV-1a.
///
/// ```
/// assert_eq!(clinch_kit::hash::fnv1a(*b"foobar"), 0x85944171f73967e8);
/// ```
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    bytes.into_iter().fold(OFFSET, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values_match() {
        assert_eq!(fnv1a(*b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(*b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
