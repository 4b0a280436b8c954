//! Replies of a MySQL or MariaDB server.

use std::sync::Arc;

use super::split::{Frame, Splitter, whole};

/// Length in three bytes, then the number of the packet within its exchange.
const HEADER: usize = 4;

/// Each packet is a frame, and the packet that begins a reply counts.
///
/// A request is packet 0 of an exchange, so the reply to it begins with packet 1, however many
/// there are; what is said while logging in has other numbers and does not count. A prepared
/// statement has two replies: to its preparation and to its execution.
///
/// `Then::Reset`, `Then::Silence` and `Then::Hold` do what they say to the whole reply.
/// `Then::Stay` would lose the first packet only, which no network does. TLS hides the packets.
///
/// ```
/// let mut split = clinch_testkit::proxy::mysql()();
/// let frames = split(b"\x01\0\0\x01a\x01\0\0\x02b\x01\0\0\x01c\x01\0");
/// assert_eq!(frames.iter().map(|f| f.counted).collect::<Vec<_>>(), [true, false, true]);
/// ```
pub fn mysql() -> Splitter {
    Arc::new(|| {
        let mut rest = Vec::new();
        let mut before = None;
        Box::new(move |bytes: &[u8]| {
            rest.extend_from_slice(bytes);
            let packets = whole(&mut rest, |head| match head {
                [a, b, c, _, ..] => {
                    let length = u32::from_le_bytes([*a, *b, *c, 0]);
                    Some(HEADER + length as usize)
                }
                _ => None,
            });
            let frame = |bytes: Vec<u8>| {
                let number = bytes.get(HEADER - 1).copied();
                // Numbers go round: 1 after 0 is somewhere in a long reply.
                let counted = number == Some(1) && before != Some(0);
                before = number;
                Frame { bytes, counted }
            };
            packets.into_iter().map(frame).collect()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u8) -> Vec<u8> {
        vec![2, 0, 0, number, b'x', b'y']
    }

    #[test]
    fn packets_are_put_together_from_pieces() {
        let mut split = mysql()();
        let bytes = [packet(1), packet(2)].concat();
        assert!(split(&bytes[..3]).is_empty());
        assert!(split(&bytes[3..5]).is_empty());
        let frames = split(&bytes[5..]);
        assert_eq!(frames[0].bytes, packet(1));
        assert_eq!(frames[1].bytes, packet(2));
        assert_eq!(frames.len(), 2);
    }

    #[test]
    fn a_reply_counts_once_and_a_login_never() {
        let mut split = mysql()();
        let mut counted = |numbers: &[u8]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|n| packet(*n)).collect();
            split(&bytes).iter().filter(|frame| frame.counted).count()
        };
        assert_eq!(counted(&[0, 2, 4]), 0, "greeting, another method, welcome");
        assert_eq!(counted(&[1]), 1);
        let long: Vec<u8> = (1..=255).chain(0..=255).chain(0..=7).collect();
        assert_eq!(counted(&long), 1);
        assert_eq!(counted(&[1, 2, 1]), 2);
    }
}
