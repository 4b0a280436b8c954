//! The layout of packed states and steps, written once: the scripts get their formats and offsets from here.
//!
//! In the text of a script, `@RECORD@` stands for the format of a record (for Lua's `struct`), `@#RECORD@`
//! for its size, `@RECORD.until@` for the offset of a field from the start, `@RECORD.until-delay@` for the
//! format of these fields, and `@REMEMBERED@` for a number. They are replaced in the text, because a local
//! variable of Lua would cost instructions in each call.

/// The fields of a packed struct, each with its format for Lua's `struct`. All are little-endian.
struct Layout {
    name: &'static str,
    fields: &'static [(&'static str, &'static str)],
}

/// The first fields of the steps of one request.
const OP: (&str, &str) = ("op", "c1");
const REQUEST: (&str, &str) = ("request", "c16");

const LAYOUTS: &[Layout] = &[
    // The start of every state: its form (`M` or `G`), the last number, when the key ends, until when some
    // ended claim must be remembered, the bytes of the memory behind it, and of the predecessor in that.
    Layout {
        name: "HEAD",
        fields: &[
            ("form", "c1"),
            ("last", "I8"),
            ("ends", "I8"),
            ("kept", "I8"),
            ("memory", "I4"),
            ("predecessor", "I2"),
        ],
    },
    // In the memory: the last hold that ended; its owner follows.
    Layout {
        name: "PREDECESSOR",
        fields: &[("seq", "I8"), ("ending", "c1")],
    },
    // In the memory: a claim that ended, with the lower half of its number.
    Layout {
        name: "ENDED",
        fields: &[REQUEST, ("seq", "I4"), ("ending", "c1"), ("keep", "I8")],
    },
    // In a state of form `G`, after the memory. `bytes` is the size of the holders' records; `first` and
    // `keep` are the first and the last end of a lease; `written` is the time of the last write.
    Layout {
        name: "GROUP",
        fields: &[
            ("limit", "I4"),
            ("taken", "I8"),
            ("held", "I4"),
            ("waiting", "I4"),
            ("bytes", "I4"),
            ("first", "I8"),
            ("keep", "I8"),
            ("written", "I8"),
        ],
    },
    // Before each record of a group.
    Layout {
        name: "LENGTH",
        fields: &[("length", "I4")],
    },
    // A holder, waiter or delay. The details follow, of which the first is the owner, and a value.
    Layout {
        name: "RECORD",
        fields: &[
            ("phase", "c1"),
            REQUEST,
            ("seq", "I8"),
            ("since", "I8"),
            ("until", "I8"),
            ("lease", "I4"),
            ("delay", "I4"),
            ("units", "I4"),
            ("details", "I2"),
        ],
    },
    // The key of strict mode; the marks of the server's run follow.
    Layout {
        name: "EPOCH",
        fields: &[("opens", "I8"), ("longest", "I8")],
    },
    // From `lease` on as in the record that the script makes of it.
    Layout {
        name: "CLAIM",
        fields: &[
            OP,
            REQUEST,
            ("after", "I8"),
            ("latest", "I8"),
            ("limit", "I4"),
            ("queue", "B"),
            ("lease", "I4"),
            ("delay", "I4"),
            ("units", "I4"),
            ("details", "I2"),
        ],
    },
    Layout {
        name: "RENEW",
        fields: &[
            OP,
            REQUEST,
            ("seq", "I8"),
            ("lease", "I4"),
            ("published", "B"),
        ],
    },
    Layout {
        name: "COMMIT",
        fields: &[
            OP,
            REQUEST,
            ("from", "I8"),
            ("to", "I8"),
            ("lease", "I4"),
            ("vote", "B"),
        ],
    },
    Layout {
        name: "ABORT",
        fields: &[OP, REQUEST, ("one", "I8"), ("other", "I8")],
    },
    Layout {
        name: "RELEASE",
        fields: &[OP, REQUEST, ("seq", "I8"), ("keep", "I8")],
    },
    Layout {
        name: "WITHDRAW",
        fields: &[OP, REQUEST, ("keep", "I8")],
    },
    // Eviction and check.
    Layout {
        name: "NUMBER",
        fields: &[OP, ("seq", "I8")],
    },
];

/// Numbers that the scripts share.
const NUMBERS: &[(&str, u64)] = &[
    // Ended claims that a state remembers in any case.
    ("REMEMBERED", 8),
    // 2020-01-01 in microseconds, from which the scripts count.
    ("EPOCH_MICROS", 1_577_836_800_000_000),
];

impl Layout {
    fn size(&self) -> usize {
        self.fields.iter().map(|(_, format)| size(format)).sum()
    }

    fn position(&self, field: &str) -> Option<usize> {
        self.fields.iter().position(|(name, _)| *name == field)
    }

    fn offset(&self, field: &str) -> Option<usize> {
        let before = self.fields.get(..self.position(field)?)?;
        Some(before.iter().map(|(_, format)| size(format)).sum())
    }

    fn format(&self, from: usize, to: usize) -> Option<String> {
        let fields = self.fields.get(from..=to)?;
        let formats: String = fields.iter().map(|(_, format)| *format).collect();
        Some(format!("<{formats}"))
    }
}

fn size(format: &str) -> usize {
    match format.get(1..) {
        Some(digits) if !digits.is_empty() => digits.parse().unwrap_or(0),
        _ => 1,
    }
}

fn layout(name: &str) -> Option<&'static Layout> {
    LAYOUTS.iter().find(|layout| layout.name == name)
}

/// What a placeholder stands for; see the [module](self).
fn value(placeholder: &str) -> Option<String> {
    if let Some(name) = placeholder.strip_prefix('#') {
        return Some(layout(name)?.size().to_string());
    }
    if let Some((name, fields)) = placeholder.split_once('.') {
        let layout = layout(name)?;
        return Some(match fields.split_once('-') {
            Some((from, to)) => layout.format(layout.position(from)?, layout.position(to)?)?,
            None => layout.offset(fields)?.to_string(),
        });
    }
    if let Some(layout) = layout(placeholder) {
        return layout.format(0, layout.fields.len().checked_sub(1)?);
    }
    let number = NUMBERS.iter().find(|(name, _)| *name == placeholder);
    number.map(|(_, number)| number.to_string())
}

/// A script with its placeholders replaced.
pub(crate) fn fill(script: &str) -> String {
    let mut filled = String::with_capacity(script.len());
    // Text and placeholders alternate.
    for (at, part) in script.split('@').enumerate() {
        match at % 2 {
            0 => filled.push_str(part),
            // A placeholder that does not exist stays as it is; a test finds it.
            _ => filled.push_str(&value(part).unwrap_or_else(|| format!("@{part}@"))),
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use clinch_core::store::{Claim, Hold, Renewal};
    use clinch_core::{Identity, Name, OwnerId};

    use super::*;
    use crate::record::{entry, step};

    fn offset(name: &str, field: &str) -> usize {
        layout(name).unwrap().offset(field).unwrap()
    }

    fn number(bytes: &[u8], name: &str, field: &str) -> u64 {
        let layout = layout(name).unwrap();
        let (_, format) = layout.fields[layout.position(field).unwrap()];
        let start = offset(name, field);
        let bytes = &bytes[start..start + size(format)];
        (bytes.iter().rev()).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn sample() -> (Arc<Identity>, Claim) {
        let me = Arc::new(Identity::new());
        let claim = Claim {
            name: Name::new("a").unwrap(),
            request: me.request(),
            owner: OwnerId::new("me"),
            client: me.info().clone(),
            units: 3,
            limit: 5,
            lease: Duration::from_millis(1001),
            lock_delay: Duration::from_millis(2002),
            queue: true,
            label: Some("label".into()),
            value: Some("value".into()),
        };
        (me, claim)
    }

    #[test]
    fn placeholders_are_replaced() {
        let script =
            "unpack('@RECORD@', s) @#RECORD@ @RECORD.until@ '@RECORD.until-delay@' @NONE.x@";
        let filled = "unpack('<c1c16I8I8I8I4I4I4I2', s) 55 33 '<I8I4I4' @NONE.x@";
        assert_eq!(fill(script), filled);
        assert_eq!(fill("@#HEAD@ @#GROUP@ @#ENDED@"), "31 48 29");
    }

    #[test]
    fn steps_are_packed_as_the_layout_says() {
        let (_, claim) = sample();
        let mut packed = step::claim(&claim, 7);
        step::set_latest(&mut packed, 9);
        let field = |field| number(&packed, "CLAIM", field);
        assert_eq!((field("op"), field("after"), field("latest")), (99, 7, 9));
        assert_eq!((field("limit"), field("queue"), field("units")), (5, 1, 3));
        assert_eq!((field("lease"), field("delay")), (1001, 2002));
        let hold = Hold {
            name: claim.name.clone(),
            request: claim.request,
            seq: 11,
        };
        let mut packed = step::release(&hold);
        step::set_keep(&mut packed, 13);
        let field = |field| number(&packed, "RELEASE", field);
        assert_eq!((field("seq"), field("keep")), (11, 13));
        assert_eq!(packed.len(), layout("RELEASE").unwrap().size());
        let mut packed = step::withdraw(claim.request);
        step::set_keep(&mut packed, 13);
        assert_eq!(number(&packed, "WITHDRAW", "keep"), 13);
        assert_eq!(packed.len(), layout("WITHDRAW").unwrap().size());
        let packed = step::renew(&Renewal {
            hold,
            lease: Duration::from_millis(17),
            value: None,
        });
        let field = |field| number(&packed, "RENEW", field);
        assert_eq!(
            (field("seq"), field("lease"), field("published")),
            (11, 17, 0)
        );
        assert_eq!(packed.len(), layout("RENEW").unwrap().size());
        let packed = step::catch_up(claim.request, 19, 23, Duration::from_millis(29));
        let field = |field| number(&packed, "COMMIT", field);
        assert_eq!((field("from"), field("to"), field("lease")), (19, 23, 29));
        assert_eq!(packed.len(), layout("COMMIT").unwrap().size());
        let packed = step::abort(claim.request, [31, 37]);
        let field = |field| number(&packed, "ABORT", field);
        assert_eq!((field("one"), field("other")), (31, 37));
        assert_eq!(number(&step::check(41), "NUMBER", "seq"), 41);
        assert_eq!(number(&step::evict(None), "NUMBER", "seq"), 0);
    }

    /// A record is made as the script makes it: from a claim, with what comes before its lease.
    #[test]
    fn records_are_read_as_the_layout_says() {
        let (_, claim) = sample();
        let packed = step::claim(&claim, 0);
        let mut record = vec![b'H'];
        record.extend(&packed[offset("CLAIM", "request")..][..16]);
        for number in [41_u64, 43, 47] {
            record.extend(number.to_le_bytes());
        }
        record.extend(&packed[offset("CLAIM", "lease")..]);
        let field = |field| number(&record, "RECORD", field);
        assert_eq!((field("seq"), field("since"), field("until")), (41, 43, 47));
        assert_eq!(
            (field("lease"), field("delay"), field("units")),
            (1001, 2002, 3)
        );
        let entry = entry(&record, 0, 5).unwrap();
        assert_eq!((entry.request, entry.seq()), (claim.request, Some(41)));
        assert_eq!(
            (entry.lease, entry.lock_delay),
            (claim.lease, claim.lock_delay)
        );
        assert_eq!((entry.units, entry.owner), (3, claim.owner));
        assert_eq!((entry.label, entry.value), (claim.label, claim.value));
    }
}
