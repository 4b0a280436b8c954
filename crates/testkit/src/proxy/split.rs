//! Cutting a stream of bytes into frames, so that replies can be counted.

use std::sync::Arc;

/// Makes, for one direction of one connection, the function that takes bytes as they come and gives
/// back the frames that are complete. What it keeps is lost if the connection ends inside a frame.
///
/// ```
/// use clinch_testkit::proxy::{Frame, Splitter};
/// let pairs: Splitter = std::sync::Arc::new(|| {
///     let mut rest = Vec::new();
///     Box::new(move |bytes: &[u8]| {
///         rest.extend_from_slice(bytes);
///         let whole = rest.len() / 2 * 2;
///         rest.drain(..whole).collect::<Vec<u8>>().chunks(2).map(Frame::from).collect()
///     })
/// });
/// let mut split = pairs();
/// assert!(split(b"a").is_empty());
/// assert_eq!(split(b"bc"), [Frame::from(&b"ab"[..])]);
/// ```
pub type Splitter = Arc<dyn Fn() -> Split + Send + Sync>;

/// Takes bytes and gives back the frames that are complete.
///
/// ```
/// use clinch_testkit::proxy::{Frame, Split, lines};
/// let (mut up, mut down): (Split, Split) = (lines()(), lines()()); // one for each direction
/// assert!(up(b"on").is_empty());
/// assert!(down(b"e\n").len() == 1 && up(b"e\n") == [Frame::from(&b"one\n"[..])]);
/// ```
pub type Split = Box<dyn FnMut(&[u8]) -> Vec<Frame> + Send>;

/// Bytes that belong together: they are swallowed, delayed and held as one.
///
/// ```
/// let reply = clinch_testkit::proxy::Frame::from(&b"+OK\r\n"[..]);
/// assert!(reply.counted);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// All of it.
    pub bytes: Vec<u8>,
    /// Whether it counts where the n-th one is swallowed. What a server sends unasked does not.
    pub counted: bool,
}

impl From<&[u8]> for Frame {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

impl From<Vec<u8>> for Frame {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            counted: true,
        }
    }
}

/// Each read is a frame: right for protocols with one request under way at a time.
///
/// ```
/// let mut split = clinch_testkit::proxy::chunks()();
/// assert_eq!(split(b"half a li")[0].bytes, b"half a li");
/// ```
pub fn chunks() -> Splitter {
    Arc::new(|| Box::new(|bytes: &[u8]| vec![bytes.into()]))
}

/// Each line is a frame, with its `\n`.
///
/// ```
/// let mut split = clinch_testkit::proxy::lines()();
/// assert!(split(b"half a li").is_empty());
/// assert_eq!(split(b"ne\nand")[0].bytes, b"half a line\n");
/// ```
pub fn lines() -> Splitter {
    Arc::new(|| {
        let mut rest = Vec::new();
        Box::new(move |bytes: &[u8]| {
            rest.extend_from_slice(bytes);
            let mut frames = Vec::new();
            while let Some(end) = rest.iter().position(|b| *b == b'\n') {
                let tail = rest.split_off(end + 1);
                frames.push(std::mem::replace(&mut rest, tail).into());
            }
            frames
        })
    })
}

/// Takes from the front whatever is complete; `length` knows how long something is when it sees
/// enough of it.
pub(super) fn whole(rest: &mut Vec<u8>, length: impl Fn(&[u8]) -> Option<usize>) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some(end) = length(rest).filter(|end| *end <= rest.len()) {
        let tail = rest.split_off(end);
        found.push(std::mem::replace(rest, tail));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_from_pieces() {
        let mut split = lines()();
        assert!(split(b"on").is_empty());
        let frames = split(b"e\ntwo\nth");
        assert_eq!(frames, [b"one\n".to_vec().into(), b"two\n".to_vec().into()]);
        assert_eq!(split(b"ree\n"), [b"three\n".to_vec().into()]);
    }
}
