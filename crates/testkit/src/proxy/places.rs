//! Addresses in the replies of Redis that are replaced: sentinels and nodes of a cluster tell their clients
//! where servers are, and clients are to go to proxies instead.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex};

use super::resp::resp;
use super::split::{Frame, Splitter};

/// Where each server is found instead. Cheap to clone; all clones are one.
///
/// ```
/// use clinch_testkit::proxy::{Places, resp_with_places};
/// let places = Places::default();
/// places.put("10.0.0.1:6379".parse().unwrap(), "127.0.0.1:40001".parse().unwrap());
/// let mut split = resp_with_places(&places)();
/// let moved = split(b"-MOVED 5 10.0.0.1:6379\r\n");
/// assert_eq!(moved[0].bytes, b"-MOVED 5 127.0.0.1:40001\r\n");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Places(Arc<Mutex<HashMap<SocketAddrV4, SocketAddrV4>>>);

impl Places {
    /// A server is found elsewhere from now on.
    pub fn put(&self, server: SocketAddrV4, instead: SocketAddrV4) {
        self.0.lock().unwrap().insert(server, instead);
    }
}

/// Like [`resp`], with the addresses in replies replaced. An address is a host and a port: as two values in
/// a row, or within a text with a colon or a blank between them.
pub fn resp_with_places(places: &Places) -> Splitter {
    let (plain, places) = (resp(), places.clone());
    Arc::new(move || {
        let (mut split, places) = (plain(), places.clone());
        Box::new(move |bytes: &[u8]| {
            let known = places.0.lock().unwrap().clone();
            let frames = split(bytes).into_iter();
            frames
                .map(|frame| Frame {
                    bytes: replace(&frame.bytes, &known),
                    counted: frame.counted,
                })
                .collect()
        })
    })
}

type Known = HashMap<SocketAddrV4, SocketAddrV4>;

fn replace(frame: &[u8], known: &Known) -> Vec<u8> {
    let hosts: Vec<String> = known.keys().map(|addr| addr.ip().to_string()).collect();
    let has = |host: &String| {
        frame
            .windows(host.len())
            .any(|part| part == host.as_bytes())
    };
    if !hosts.iter().any(has) {
        return frame.to_vec();
    }
    let mut out = Vec::with_capacity(frame.len() + 16);
    let mut rest = frame;
    // The value before, if it was a host, and where it begins in `out`.
    let mut host: Option<(String, usize)> = None;
    while let Some((kind, value, after)) = value(rest) {
        let begin = out.len();
        let Some(text) = value.and_then(|value| std::str::from_utf8(value).ok()) else {
            out.extend_from_slice(&rest[..rest.len() - after.len()]);
            host = None;
            rest = after;
            continue;
        };
        let pair = host.take().and_then(|(host, at)| {
            let server = format!("{host}:{text}").parse().ok()?;
            Some((known.get(&server)?, at))
        });
        if let Some((instead, at)) = pair {
            out.truncate(at);
            emit(&mut out, b'$', &instead.ip().to_string());
            emit(&mut out, kind, &instead.port().to_string());
        } else {
            if hosts.iter().any(|host| host == text) {
                host = Some((text.to_owned(), begin));
            }
            emit(&mut out, kind, &within(text, known));
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out
}

fn within(text: &str, known: &Known) -> String {
    let mut text = text.to_owned();
    for (server, instead) in known {
        for between in [":", " "] {
            let from = format!("{}{between}{}", server.ip(), server.port());
            let to = format!("{}{between}{}", instead.ip(), instead.port());
            text = text.replace(&from, &to);
        }
    }
    text
}

fn emit(out: &mut Vec<u8>, kind: u8, text: &str) {
    let line = match kind {
        b'$' | b'=' | b'!' => format!("{}{}\r\n{text}\r\n", char::from(kind), text.len()),
        _ => format!("{}{text}\r\n", char::from(kind)),
    };
    out.extend_from_slice(line.as_bytes());
}

/// A value: its kind, its text if it has one, and what comes after it.
type Value<'a> = (u8, Option<&'a [u8]>, &'a [u8]);

/// The first value.
fn value(bytes: &[u8]) -> Option<Value<'_>> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (kind, line) = (*bytes.first()?, bytes.get(1..end)?);
    let after = bytes.get(end + 2..)?;
    Some(match kind {
        b'$' | b'=' | b'!' => {
            let length = std::str::from_utf8(line).ok()?.parse::<usize>();
            match length {
                Ok(length) => (kind, Some(after.get(..length)?), after.get(length + 2..)?),
                Err(_) => (kind, None, after), // there is none
            }
        }
        b'+' | b'-' | b':' => (kind, Some(line), after),
        _ => (kind, None, after),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(frame: &str) -> String {
        let places = Places::default();
        places.put(
            "10.0.0.1:7000".parse().unwrap(),
            "127.0.0.1:40001".parse().unwrap(),
        );
        places.put(
            "10.0.0.2:7001".parse().unwrap(),
            "127.0.0.1:40002".parse().unwrap(),
        );
        let known = places.0.lock().unwrap().clone();
        String::from_utf8(replace(frame.as_bytes(), &known)).unwrap()
    }

    #[test]
    fn a_host_and_a_port_in_a_row_are_replaced() {
        let sentinel = "*2\r\n$8\r\n10.0.0.1\r\n$4\r\n7000\r\n";
        assert_eq!(
            replaced(sentinel),
            "*2\r\n$9\r\n127.0.0.1\r\n$5\r\n40001\r\n"
        );
        let slots = "*1\r\n*3\r\n:0\r\n:99\r\n*3\r\n$8\r\n10.0.0.2\r\n:7001\r\n$2\r\nid\r\n";
        let want = "*1\r\n*3\r\n:0\r\n:99\r\n*3\r\n$9\r\n127.0.0.1\r\n:40002\r\n$2\r\nid\r\n";
        assert_eq!(replaced(slots), want);
    }

    #[test]
    fn texts_are_replaced_and_their_length_is_right() {
        let text = ">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$35\r\nm 10.0.0.1 7000 10.0.0.2 7001 hello\r\n";
        let got = replaced(text);
        assert!(
            got.ends_with("$39\r\nm 127.0.0.1 40001 127.0.0.1 40002 hello\r\n"),
            "{got}"
        );
    }

    #[test]
    fn what_is_no_address_stays_as_it_is() {
        for frame in [
            "$-1\r\n",
            "$4\r\n7000\r\n",
            ":7000\r\n",
            "*2\r\n$8\r\n10.0.0.1\r\n$4\r\n7001\r\n",
            "*0\r\n",
        ] {
            assert_eq!(replaced(frame), frame);
        }
        let bytes = b"*2\r\n$8\r\n10.0.0.1\r\n$2\r\n\xff\xfe\r\n";
        let known = [(
            "10.0.0.1:1".parse().unwrap(),
            "127.0.0.1:2".parse().unwrap(),
        )];
        assert_eq!(replace(bytes, &known.into()), bytes);
    }
}
