//! Replies over HTTP/2, such as those of gRPC.

use std::sync::Arc;

use super::split::{Frame, Splitter, whole};

/// Length in three bytes, kind, flags, and the stream in four.
const HEADER: usize = 9;

/// What a client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The kind of frame that carries content.
const DATA: u8 = 0;

/// Each HTTP/2 frame is a frame, and those that carry content count: a small message of gRPC is
/// one, so a plain call has one reply and a stream has one for each message.
///
/// `Then::Reset`, `Then::Silence` and `Then::Hold` do what they say to that reply and to all that
/// comes later on the connection, which carries many calls. `Then::Stay` leaves a call that ends
/// well and without an answer. TLS hides the frames.
///
/// ```
/// let mut split = clinch_testkit::proxy::http2()();
/// let settings = b"\0\0\0\x04\0\0\0\0\0";
/// let data = b"\0\0\x02\0\0\0\0\0\x01hi";
/// let frames = split(&[&settings[..], &data[..]].concat());
/// assert_eq!(frames.iter().map(|f| f.counted).collect::<Vec<_>>(), [false, true]);
/// ```
pub fn http2() -> Splitter {
    Arc::new(|| {
        let mut rest = Vec::new();
        Box::new(move |bytes: &[u8]| {
            rest.extend_from_slice(bytes);
            let frames = whole(&mut rest, |head| {
                if head.starts_with(PREFACE) {
                    return Some(PREFACE.len());
                }
                match head {
                    // As a length, the preface would be five million bytes.
                    [b'P', b'R', b'I', ..] => None,
                    [a, b, c, ..] if head.len() >= HEADER => {
                        let length = u32::from_be_bytes([0, *a, *b, *c]);
                        Some(HEADER + length as usize)
                    }
                    _ => None,
                }
            });
            let frame = |bytes: Vec<u8>| Frame {
                counted: bytes.get(3) == Some(&DATA) && bytes.len() > HEADER,
                bytes,
            };
            frames.into_iter().map(frame).collect()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_put_together_from_pieces() {
        let data = b"\0\0\x02\0\0\0\0\0\x01hi";
        let empty = b"\0\0\0\0\x01\0\0\0\x01";
        let bytes = [PREFACE, data, empty].concat();
        let mut split = http2()();
        let frames: Vec<Frame> = bytes.chunks(5).flat_map(&mut split).collect();
        let kinds: Vec<_> = frames
            .iter()
            .map(|f| (f.bytes.as_slice(), f.counted))
            .collect();
        assert_eq!(
            kinds,
            [(PREFACE, false), (&data[..], true), (&empty[..], false)]
        );
    }
}
