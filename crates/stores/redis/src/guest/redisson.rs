//! Redisson's `RLock`: a hash at the name, with the field `UUID:THREAD` and its reentrant count.

use std::sync::LazyLock;

use clinch_core::store::PartyView;
use clinch_core::{Name, RequestId};

use super::layout::mix;
use crate::scripts::Script;

pub(super) static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("common.lua"),
        include_str!("redisson.lua")
    ))
});

/// The channel on which a release is published.
pub(super) fn channel(name: &Name) -> String {
    prefixed("redisson_lock__channel", name)
}

/// The queue of a fair lock with this name.
pub(super) fn queue(name: &Name) -> String {
    prefixed("redisson_lock_queue", name)
}

/// How Redisson adds a prefix to a name: a name with a brace has its own hash tag.
fn prefixed(prefix: &str, name: &Name) -> String {
    match name.as_str().contains('{') {
        true => format!("{prefix}:{name}"),
        false => format!("{prefix}:{{{name}}}"),
    }
}

/// The field of a claim: the client as a UUID, and the claim where Redisson has the thread.
pub(super) fn owner(request: RequestId) -> String {
    let client = request.client().get();
    let random = u128::from(client) << 64 | u128::from(mix(client));
    // Version 4 and the usual variant, as Java's random ones have.
    let id = random & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{id:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    // Thread ids are signed.
    let thread = request.as_u128() & u128::from(i64::MAX.unsigned_abs());
    format!(
        "{}-{}-{}-{}-{}:{thread}",
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32)
    )
}

/// Whether a field of a hash looks like an owner of Redisson.
pub(super) fn is_owner(field: &str) -> bool {
    let Some((id, thread)) = field.split_once(':') else {
        return false;
    };
    let hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    id.len() == 36 && id.bytes().all(hex) && thread.starts_with(|c: char| c.is_ascii_digit())
}

/// Adds the reentrant count of the holder.
pub(super) fn describe(count: &str, party: &mut PartyView) {
    if count != "1" {
        party.label = Some(format!("entered {count} times").into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_looks_like_one_of_redissons() {
        let me = clinch_core::Identity::new();
        let (a, b) = (owner(me.request()), owner(me.request()));
        assert!(is_owner(&a) && is_owner(&b), "{a} {b}");
        let (client, _) = a.split_once(':').unwrap();
        assert!(b.starts_with(client) && a != b);
        assert_eq!(client.get(14..15), Some("4"));
        assert!(matches!(client.get(19..20), Some("8" | "9" | "a" | "b")));
        assert!(!is_owner("mode") && !is_owner("a:1"));
    }

    #[test]
    fn a_name_with_a_brace_has_its_own_tag() {
        let name = |text| Name::new(text).unwrap();
        assert_eq!(channel(&name("a")), "redisson_lock__channel:{a}");
        assert_eq!(channel(&name("{a}:b")), "redisson_lock__channel:{a}:b");
    }
}
