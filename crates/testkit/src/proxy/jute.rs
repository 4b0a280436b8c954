//! The frames of the ZooKeeper protocol.

use std::sync::Arc;

use super::split::{Frame, Splitter};

/// Each request and each reply of ZooKeeper is a frame: four bytes of length, then its number.
///
/// What is not a client's own request or the reply to one is passed on and never counted: the
/// greeting, pings, logins, watches that are set again, and what they tell.
///
/// ```
/// let mut split = clinch_testkit::proxy::jute()();
/// assert!(split(&[0, 0, 0, 4, 0, 0]).is_empty());
/// let frames = split(&[0, 1, 0, 0, 0, 4, 255, 255, 255, 254]); // a reply, then a ping
/// assert_eq!(frames[0].bytes, [0, 0, 0, 4, 0, 0, 0, 1]);
/// assert!(frames[0].counted && !frames[1].counted);
/// ```
pub fn jute() -> Splitter {
    Arc::new(|| {
        let mut rest = Vec::new();
        Box::new(move |bytes: &[u8]| {
            rest.extend_from_slice(bytes);
            let mut frames = Vec::new();
            while let Some(length) = number(&rest, 0).and_then(|n| usize::try_from(n).ok())
                && rest.len() >= length + 4
            {
                let tail = rest.split_off(length + 4);
                let bytes = std::mem::replace(&mut rest, tail);
                let counted = number(&bytes, 4).is_some_and(|xid| xid > 0);
                frames.push(Frame { bytes, counted });
            }
            frames
        })
    })
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(i32::from_be_bytes(bytes.try_into().ok()?))
}
