//! Cutting a stream of bytes into frames, so that replies can be counted.

use std::sync::Arc;

/// Makes, for one direction of one connection, the function that takes bytes as they come and gives
/// back the frames that are complete. What it keeps is lost if the connection ends inside a frame.
///
/// ```
/// use clinch_testkit::proxy::Splitter;
/// let pairs: Splitter = std::sync::Arc::new(|| {
///     let mut rest = Vec::new();
///     Box::new(move |bytes: &[u8]| {
///         rest.extend_from_slice(bytes);
///         let whole = rest.len() / 2 * 2;
///         rest.drain(..whole).collect::<Vec<u8>>().chunks(2).map(<[u8]>::to_vec).collect()
///     })
/// });
/// let mut split = pairs();
/// assert!(split(b"a").is_empty());
/// assert_eq!(split(b"bc"), [b"ab".to_vec()]);
/// ```
pub type Splitter = Arc<dyn Fn() -> Split + Send + Sync>;

/// Takes bytes and gives back the frames that are complete.
///
/// ```
/// use clinch_testkit::proxy::{Split, lines};
/// let (mut up, mut down): (Split, Split) = (lines()(), lines()()); // one for each direction
/// assert!(up(b"on").is_empty());
/// assert!(down(b"e\n").len() == 1 && up(b"e\n") == [b"one\n".to_vec()]);
/// ```
pub type Split = Box<dyn FnMut(&[u8]) -> Vec<Vec<u8>> + Send>;

/// Each read is a frame: right for protocols with one request under way at a time.
///
/// ```
/// let mut split = clinch_testkit::proxy::chunks()();
/// assert_eq!(split(b"half a li"), [b"half a li".to_vec()]);
/// ```
pub fn chunks() -> Splitter {
    Arc::new(|| Box::new(|bytes: &[u8]| vec![bytes.to_vec()]))
}

/// Each line is a frame, with its `\n`.
///
/// ```
/// let mut split = clinch_testkit::proxy::lines()();
/// assert!(split(b"half a li").is_empty());
/// assert_eq!(split(b"ne\nand"), [b"half a line\n".to_vec()]);
/// ```
pub fn lines() -> Splitter {
    Arc::new(|| {
        let mut rest = Vec::new();
        Box::new(move |bytes: &[u8]| {
            rest.extend_from_slice(bytes);
            let mut frames = Vec::new();
            while let Some(end) = rest.iter().position(|b| *b == b'\n') {
                let tail = rest.split_off(end + 1);
                frames.push(std::mem::replace(&mut rest, tail));
            }
            frames
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_from_pieces() {
        let mut split = lines()();
        assert!(split(b"on").is_empty());
        let frames = split(b"e\ntwo\nth");
        assert_eq!(frames, [b"one\n".to_vec(), b"two\n".to_vec()]);
        assert_eq!(split(b"ree\n"), [b"three\n".to_vec()]);
    }
}
