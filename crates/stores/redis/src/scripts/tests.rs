//! The fast path does what the slow path does, byte for byte; and every placeholder has a value.

use std::time::Duration;

use clinch_core::store::{Claim, Hold, Renewal};
use clinch_core::{Identity, Name, OwnerId, RequestId};
use clinch_testkit::servers::{Redis, Step as ClockStep};
use redis::{Connection, Value};

use super::{STEPS, VIEW};
use crate::record::{self, entry, step};

const SEQUENCES: u64 = 150;
const STEPS_OF_EACH: u32 = 40;

#[test]
fn every_placeholder_has_a_value() {
    for script in [&STEPS, &VIEW] {
        assert!(!script.text.contains('@'));
    }
}

/// Runs one step twice in one script, at the same time: on the first key on the fast path, and on the second
/// one on the slow path, which a subscriber of the second channel of events requires. While a waiter has
/// expired, both are on the slow path, which removes it as soon as it is at the head; the fast path leaves it
/// to a later step.
///
/// KEYS: both states, both keys of highest numbers. ARGV: the step, how clients are notified, and FLOOR.
fn both_paths() -> String {
    let mut text = STEPS.text.clone();
    for (original, changed) in [
        ("local time = call('TIME')", "local time = same_time"),
        (
            "slow = slow or slow_path(",
            "slow_calls = slow_calls + 1 slow = slow or slow_path(",
        ),
    ] {
        assert!(text.contains(original), "{original}");
        text = text.replace(original, changed);
    }
    let expired = record::fill(
        "local function has_expired_waiter(state)
           local form, _, _, _, memory, _, at = struct.unpack('@HEAD@', state)
           if form ~= 'G' then return false end
           local now = (same_time[1] * 1000000 + same_time[2] - @EPOCH_MICROS@) / 1000
           local _, _, _, _, bytes, _, _, _, records = struct.unpack('@GROUP@', state, at + memory)
           at = records + bytes
           while at < #state do
             if struct.unpack('<I8', state, at + @#LENGTH@ + @RECORD.until@) <= now then return true end
             at = at + @#LENGTH@ + struct.unpack('@LENGTH@', state, at)
           end
         end",
    );
    format!(
        "local slow_calls, same_time = 0, redis.call('TIME')
         local function run(KEYS, ARGV)
         {text}
         end
         {expired}
         local state = redis.call('GET', KEYS[1])
         local first = state and has_expired_waiter(state) and 'slow' or 'fast'
         local outcomes = {{}}
         for path = 1, 2 do
           local replies = run({{ KEYS[path] }}, {{ ARGV[1], 'wake:', path == 1 and first or 'slow', ARGV[2],
             '600000', '', '', '0', KEYS[2 + path], ARGV[3] }})
           local key = KEYS[path]
           outcomes[path] = {{ replies, redis.call('GET', key), redis.call('GET', KEYS[2 + path]) }}
           outcomes[2 + path], outcomes[4 + path] = slow_calls, redis.call('PTTL', key)
         end
         return outcomes"
    )
}

/// A small generator of random numbers: the sequences are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// The server's time, the limit, the records of holders and of waiters.
type View = (u64, u32, Vec<Vec<u8>>, Vec<Vec<u8>>);

/// One client, with the requests of one name.
struct Client {
    random: Random,
    identity: Identity,
    requests: Vec<RequestId>,
    /// The server's time, in ms since 2020.
    now: u64,
    /// The records of the holders and waiters: request and number.
    records: Vec<(RequestId, u64)>,
}

impl Client {
    fn request(&mut self) -> RequestId {
        let at = self.random.index(4);
        match self.requests.get(at) {
            Some(request) if !self.random.one_in(4) => *request,
            _ => {
                let request = self.identity.request();
                match self.requests.get_mut(at) {
                    Some(place) => *place = request,
                    None => self.requests.push(request),
                }
                request
            }
        }
    }

    /// A hold of the name, most often one that is there.
    fn hold(&mut self) -> Hold {
        let (request, seq) = match self.records.len() {
            0 => (self.request(), 1),
            // Holders come first.
            _ if !self.random.one_in(3) => self.records[0],
            count => self.records[self.random.index(count)],
        };
        Hold {
            name: Name::new("a").unwrap(),
            request,
            seq: seq + u64::from(self.random.one_in(8)),
        }
    }

    /// A time around now.
    fn moment(&mut self) -> u64 {
        match self.random.below(8) {
            0 => self.now.saturating_sub(1000),
            1..4 => self.now + 5000,
            _ => 0,
        }
    }

    fn claim(&mut self) -> Vec<u8> {
        let limit = if self.random.one_in(40) { 2 } else { 1 };
        let claim = Claim {
            name: Name::new("a").unwrap(),
            request: self.request(),
            owner: OwnerId::new("owner"),
            client: self.identity.info().clone(),
            units: if self.random.one_in(4) { limit } else { 1 },
            limit,
            lease: Duration::from_millis(500 + self.random.below(3) * 1000),
            lock_delay: Duration::from_millis(self.random.below(4) / 2 * 700),
            queue: !self.random.one_in(4),
            label: None,
            value: self.random.one_in(4).then(|| "value".into()),
        };
        let after = match self.random.below(12) {
            // Ahead of the clock.
            0 => self.now * 1000 + 3_000_000,
            _ => 0,
        };
        let mut packed = match self.random.one_in(30) {
            true => step::prepare(&claim, after),
            false => step::claim(&claim, after),
        };
        let late = self.random.one_in(30);
        step::set_latest(&mut packed, self.now + if late { 0 } else { 60_000 });
        packed
    }

    fn step(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0..9 => self.claim(),
            9..12 => step::renew(&Renewal {
                hold: self.hold(),
                lease: Duration::from_millis(400 + self.random.below(2000)),
                value: self.random.one_in(4).then(|| "new".into()),
            }),
            12..17 => {
                let mut packed = step::release(&self.hold());
                step::set_keep(&mut packed, self.moment());
                packed
            }
            17 => {
                let mut packed = step::withdraw(self.hold().request);
                step::set_keep(&mut packed, self.moment());
                packed
            }
            18 => step::evict(Some(self.hold().seq)),
            _ => {
                let hold = self.hold();
                step::vote(hold.request, hold.seq + 1, Duration::from_secs(1))
            }
        }
    }

    /// Reads what is at the server.
    fn look(&mut self, connection: &mut Connection, key: &str) {
        let mut view = redis::cmd("EVAL");
        view.arg(&VIEW.text).arg(1).arg(key);
        let views: Vec<View> = view.query(connection).unwrap();
        let (now, limit, held, waiting) = views.into_iter().next().unwrap();
        self.now = now;
        let records = held.iter().chain(&waiting);
        // Prepared claims have no entry.
        let entries = records.filter_map(|record| entry(record, 0, limit));
        self.records = entries
            .map(|entry| (entry.request, entry.seq().unwrap_or(0)))
            .collect();
    }
}

#[test]
fn the_fast_path_does_what_the_slow_path_does() {
    let server = Redis::with().clock_shim().start().unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let mut watcher = client.get_connection().unwrap();
    let mut watching = watcher.as_pubsub();
    watching.subscribe("slow").unwrap();
    let script = both_paths();
    let (mut steps, mut fast) = (0, 0);
    for sequence in 1..=SEQUENCES {
        let keys: Vec<_> = ["fast", "slow", "fast:highest", "slow:highest"]
            .map(|key| format!("{sequence}:{key}"))
            .into();
        let mut random = Random(sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let notify = if random.one_in(4) { "h" } else { "g" };
        let floor = if random.one_in(4) { "7" } else { "" };
        let mut client = Client {
            random,
            identity: Identity::new(),
            requests: Vec::new(),
            now: 0,
            records: Vec::new(),
        };
        let mut history = Vec::new();
        for _ in 0..STEPS_OF_EACH {
            match client.random.below(16) {
                0 => server
                    .step_clock(Duration::from_millis(900), ClockStep::Forward)
                    .unwrap(),
                1 if client.random.one_in(4) => server
                    .step_clock(Duration::from_secs(5), ClockStep::Back)
                    .unwrap(),
                _ => {}
            }
            client.look(&mut connection, &keys[0]);
            let packed = client.step();
            history.push(String::from_utf8_lossy(&packed[..1]).into_owned());
            let mut call = redis::cmd("EVAL");
            call.arg(&script).arg(keys.len()).arg(&keys);
            call.arg(packed).arg(notify).arg(floor);
            let outcomes: Vec<Value> = call.query(&mut connection).unwrap();
            let [one, other, numbers @ ..] = outcomes.as_slice() else {
                panic!("{outcomes:?}");
            };
            let [
                Value::Int(before),
                Value::Int(after),
                Value::Int(ttl),
                Value::Int(other_ttl),
            ] = numbers
            else {
                panic!("{outcomes:?}");
            };
            assert_eq!(one, other, "sequence {sequence}: {history:?}");
            // Written one after the other; a lifetime that is not moved differs by minutes.
            assert!(ttl.abs_diff(*other_ttl) < 1000, "{ttl} {other_ttl}");
            assert_eq!(after - before, 1, "the second one is on the slow path");
            steps += 1;
            fast += 1 - before;
        }
    }
    // Else this test would compare the slow path with itself.
    assert!(fast > steps / 5, "{fast} of {steps} on the fast path");
}
