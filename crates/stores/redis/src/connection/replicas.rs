//! Grants and renewals that count only once replicas have them.
//!
//! A claim or a renewal is followed by `WAIT`. If too few replicas have acknowledged it in time, a
//! grant or a renewal becomes an error; every other reply (queued, busy, lost, released) stays valid.

use std::time::Duration;

use clinch_core::Result;
use redis::{Cmd, Value};

use crate::error::unreplicated;
use crate::scripts::{Call, STEPS};

/// The command that waits for replicas.
///
/// `WAIT` blocks the connection, and two calls may be in flight: the second one, and the requests
/// behind it, must still be answered within the timeout. So it waits for a quarter of it.
pub(crate) fn wait(replicas: u32, timeout: Duration) -> Cmd {
    let limit = u64::try_from((timeout / 4).as_millis()).unwrap_or(u64::MAX);
    let mut command = redis::cmd("WAIT");
    // 0 would mean without limit.
    command.arg(replicas).arg(limit.max(1));
    command
}

/// The reply to a call, with errors in place of grants and renewals that too few replicas have.
pub(crate) fn settled(call: &Call, reply: Value, acks: Option<Value>, to: &str) -> Result<Value> {
    if call.wait == 0 {
        return Ok(reply);
    }
    let have = match acks {
        Some(Value::Int(acks)) if acks >= i64::from(call.wait) => return Ok(reply),
        Some(Value::Int(acks)) => format!("{acks} of {} replicas have it", call.wait),
        Some(Value::ServerError(error)) => format!("it cannot be waited for replicas: {error}"),
        _ => "it is not known which replicas have it".to_owned(),
    };
    let text = format!("{to}: {have}, and a failover could lose it");
    match reply {
        Value::Array(replies) if call.script.hash() == STEPS.hash() => {
            let steps = call.args.iter().map(Vec::as_slice);
            let replies = replies.into_iter().zip(steps);
            let kept = replies.map(|(reply, step)| match &reply {
                Value::BulkString(bytes) if relies(step, bytes) => {
                    Value::BulkString(format!("~{text}").into_bytes())
                }
                _ => reply,
            });
            Ok(Value::Array(kept.collect()))
        }
        _ => Err(unreplicated(text)),
    }
}

/// Whether a client would rely on this reply: a claim that is granted, a hold that is renewed or
/// committed.
fn relies(step: &[u8], reply: &[u8]) -> bool {
    matches!(
        (step.first(), reply.first()),
        (Some(b'c'), Some(b'G')) | (Some(b'n' | b't'), Some(b'H'))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(texts: &[&str]) -> Value {
        let bulk = |text: &&str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(texts.iter().map(bulk).collect())
    }

    fn call(steps: &[&str]) -> Call {
        let args = steps.iter().map(|step| step.as_bytes().to_vec());
        Call {
            wait: 2,
            ..Call::new(&STEPS, Vec::new(), args.collect())
        }
    }

    #[test]
    fn only_grants_and_renewals_need_replicas() {
        let call = call(&["c", "c", "c", "n", "n", "r", "w", "t"]);
        let all = reply(&["G1", "Q1", "B1", "H", "Xf", "H", "H", "H"]);
        let settled = settled(&call, all, Some(Value::Int(1)), "h:1").unwrap();
        let lost = "~h:1: 1 of 2 replicas have it, and a failover could lose it";
        let left = [lost, "Q1", "B1", lost, "Xf", "H", "H", lost];
        assert_eq!(settled, reply(&left));
    }

    #[test]
    fn an_answer_that_is_no_number_is_no_replica() {
        let call = call(&["c"]);
        for acks in [None, Some(Value::Nil), Some(Value::Okay)] {
            let settled = settled(&call, reply(&["G1"]), acks, "h:1").unwrap();
            assert_ne!(settled, reply(&["G1"]));
        }
        let enough = settled(&call, reply(&["G1"]), Some(Value::Int(2)), "h:1");
        assert_eq!(enough.unwrap(), reply(&["G1"]));
    }
}
