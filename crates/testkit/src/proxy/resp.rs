//! The frames of the Redis protocol, versions 2 and 3.

use std::sync::Arc;

use super::split::{Frame, Splitter};

/// Each reply of Redis is a frame, whatever it holds; an attribute belongs to the reply after it.
///
/// A push of version 3 (`>`) is passed on at once and never counted. Version 2 has no such mark:
/// there a published message is a reply like any other. Requests are split as well, also those
/// typed by hand; what is not of this protocol passes line by line.
///
/// ```
/// let mut split = clinch_testkit::proxy::resp()();
/// assert!(split(b"*2\r\n$1\r\na\r\n").is_empty());
/// let frames = split(b":1\r\n>1\r\n+message\r\n");
/// assert_eq!(frames[0].bytes, b"*2\r\n$1\r\na\r\n:1\r\n");
/// assert!(frames[0].counted && !frames[1].counted);
/// ```
pub fn resp() -> Splitter {
    Arc::new(|| {
        let mut rest = Vec::new();
        Box::new(move |bytes: &[u8]| {
            rest.extend_from_slice(bytes);
            let (mut frames, mut start) = (Vec::new(), 0);
            while let Some(length) = rest.get(start..).and_then(frame_length) {
                let bytes = rest.get(start..start + length).unwrap_or_default();
                frames.push(Frame {
                    counted: bytes.first() != Some(&b'>'),
                    bytes: bytes.to_vec(),
                });
                start += length;
            }
            rest.drain(..start);
            frames
        })
    })
}

/// The length of the frame at the beginning, if it is all there.
fn frame_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0_usize;
    // How many values are still to come.
    let mut wanted = 1_usize;
    while wanted > 0 {
        let rest = bytes.get(at..)?;
        let end = rest.iter().position(|b| *b == b'\n')? + 1;
        let line = rest.get(..end)?;
        at = at.checked_add(end)?;
        wanted -= 1;
        let (kind, number) = (line.first()?, number(line));
        match kind {
            b'$' | b'=' | b'!' => {
                if let Some(length) = number {
                    at = at.checked_add(length)?.checked_add(2)?;
                }
            }
            b'*' | b'~' | b'>' => wanted = wanted.checked_add(number.unwrap_or(0))?,
            b'%' => wanted = wanted.checked_add(number.unwrap_or(0).checked_mul(2)?)?,
            // The value that it describes comes after it.
            b'|' => {
                let pairs = number.unwrap_or(0).checked_mul(2)?;
                wanted = wanted.checked_add(pairs)?.checked_add(1)?;
            }
            _ => {}
        }
    }
    (at <= bytes.len()).then_some(at)
}

/// The number behind the first byte; none if it is negative, which stands for no value.
fn number(line: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(line.get(1..)?).ok()?;
    text.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts the bytes whole, and one by one: the frames must be the same.
    fn split(bytes: &[u8]) -> Vec<(String, bool)> {
        let text = |frame: &Frame| {
            (
                String::from_utf8(frame.bytes.clone()).unwrap(),
                frame.counted,
            )
        };
        let whole: Vec<_> = resp()()(bytes).iter().map(text).collect();
        let mut one = resp()();
        let pieces = bytes.iter().flat_map(|byte| one(&[*byte]));
        assert_eq!(pieces.map(|f| text(&f)).collect::<Vec<_>>(), whole);
        whole
    }

    #[test]
    fn every_kind_of_value_is_one_frame() {
        let values = [
            "+OK\r\n",
            "-ERR no\r\n",
            ":-12\r\n",
            "$5\r\na\r\nbc\r\n",
            "$0\r\n\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "_\r\n",
            "#t\r\n",
            ",3.25\r\n",
            "(3492890328409238509324850943850943825024385\r\n",
            "!11\r\nERR because\r\n",
            "=15\r\ntxt:Some string\r\n",
            "~3\r\n+a\r\n:1\r\n_\r\n",
            "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
            "%0\r\n",
            "*2\r\n*2\r\n$1\r\na\r\n*1\r\n$-1\r\n%1\r\n~1\r\n:1\r\n*0\r\n",
            "|1\r\n+ttl\r\n:3600\r\n*2\r\n:1\r\n:2\r\n",
            "*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n",
        ];
        for value in values {
            assert_eq!(split(value.as_bytes()), [(value.to_owned(), true)]);
        }
        let all = split(values.concat().as_bytes());
        let all: Vec<_> = all.iter().map(|(frame, _)| frame.as_str()).collect();
        assert_eq!(all, values);
    }

    #[test]
    fn pushes_are_not_counted() {
        let push = ">3\r\n$7\r\nmessage\r\n+c\r\n*1\r\n:1\r\n";
        let frames = split(format!("+a\r\n{push}+b\r\n").as_bytes());
        let counted: Vec<_> = frames.iter().map(|(_, counted)| *counted).collect();
        assert_eq!(counted, [true, false, true]);
        assert_eq!(frames[1].0, push);
    }

    #[test]
    fn half_a_frame_waits_for_the_rest() {
        for part in [
            "",
            "$",
            "$5\r",
            "$5\r\nabc",
            "$5\r\nabcde\r",
            "*2\r\n:1\r\n",
            "|1\r\n+a\r\n+b\r\n",
        ] {
            assert!(split(part.as_bytes()).is_empty(), "{part:?}");
        }
    }

    #[test]
    fn what_is_not_understood_passes_by_lines() {
        let frames = split(b"PING\r\n*x\r\n$99999999999999999999\r\n+OK\r\n");
        let frames: Vec<_> = frames.into_iter().map(|(frame, _)| frame).collect();
        let lines = ["PING\r\n", "*x\r\n", "$99999999999999999999\r\n", "+OK\r\n"];
        assert_eq!(frames, lines);
    }
}
