//! Tokens are checked at data in Redis.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use clinch_core::Token;
use clinch_redis::fence::{guarded, refused, text};
use clinch_testkit::servers::Redis;

fn token(seq: u64, local: u64) -> String {
    text(Token::new(seq, local).unwrap())
}

#[test]
fn an_older_token_writes_nothing() {
    let server = Redis::start().unwrap();
    let script = guarded("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    let write =
        |token: &str| server.cli(&["EVAL", &script, "2", "stock", "stock:fence", "1", token]);
    // Greater than 2^53 and next to each other: Lua's numbers could not distinguish them.
    let (old, new) = (token((1 << 51) - 1, 4094), token((1 << 51) - 1, 4095));
    assert_eq!(write(&old).unwrap(), "1");
    assert_eq!(write(&old).unwrap(), "2", "the same holder writes again");
    assert_eq!(write(&new).unwrap(), "3");
    let said = match write(&old) {
        Ok(reply) => reply,
        Err(error) => error.to_string(),
    };
    let error = refused(&said).unwrap();
    assert!(error.to_string().contains("is refused"), "{error}");
    assert_eq!(server.cli(&["GET", "stock"]).unwrap(), "3");
}
