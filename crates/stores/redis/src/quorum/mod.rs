//! Locks on several independent servers, of which `need` must agree: a majority, or all.
//!
//! # A claim
//!
//! A two-phase protocol:
//!
//! 1. *Prepare*, at all servers at once. Each that has room keeps a prepared claim: it takes its units like
//!    a hold, but for a few seconds only, and has a number of that server's own.
//! 2. When `need` servers have prepared, they vote on a number: the greatest of theirs, and greater than
//!    every number that this client has seen before. A vote *commits* the prepared claim: it becomes a hold
//!    with that number and the whole lease. With `need` votes the claim is granted, and the number is its
//!    token.
//! 3. Otherwise all are *aborted*, and the claimant retries after a backoff with jitter. There is no
//!    queue: queues of independent servers could deadlock.
//!
//! No step waits for more than `need` servers. Replies of the others are handled in the background: a
//! claim that was prepared late *catches up* with the token, or is aborted.
//!
//! # Why two holders exclude each other
//!
//! Any two sets of `need` servers have a server in common, because `need` is more than half. A hold
//! stands at `need` servers from its last vote on, at each of them for a lease that began after the claim
//! was sent, and the engine calls it valid for less than a lease from before that send (1 % and 10 ms
//! less: that is the drift and the elapsed time of Redlock). The common server admits the next one
//! only when the first was released or its lease has ended there, so not while it is called valid. The
//! same holds for a reader and a writer, of which the server has room for one. It does not for a
//! semaphore of N: each server admits N, but of 5 servers any 3 make a grant, so 5 × N / 3 grants
//! could stand. With `need=all` each server alone has the whole truth, and semaphores are safe.
//!
//! The lock-delay is kept by each server from the end of the hold there, so the common server keeps the
//! next one out for as long.
//!
//! # Why tokens rise
//!
//! A server votes for a number only if that is greater than all it has given, or is what it gave to this
//! very claim; and it gives no smaller one afterwards. Take two grants, and a server that voted for both.
//!
//! - Grant 2 began after grant 1 was complete: at the common server claim 2 was prepared after the
//!   vote for 1, so its number is greater than token 1, and token 2 is at least that number.
//! - They overlapped in time: the later vote at the common server was for a number greater than the
//!   earlier one, so the tokens differ. For a mutex the hold of one has ended there before the other
//!   was prepared, so the order of the tokens is that of the holds.
//!
//! This requires that the common server has not lost its data. One that has goes on at its own clock in
//! microseconds since 2020, and never below a number that the claiming client has seen.
//! `durability=strict` closes the gap: such a server takes no part until every hold from before is over.
//!
//! # Why an abort affects no other claim
//!
//! An abort names the request and the numbers that it applies to. It may arrive late, when the same request
//! has claimed again. So no round begins before the last one of its request has ended ([`ledger`]), and
//! none votes for a number that any earlier abort of this client can have named: votes are greater than
//! all numbers seen when the round began.

mod admin;
mod answers;
mod background;
mod holds;
mod inspect;
mod late;
mod ledger;
mod nodes;
mod prepared;
mod round;
mod store;
mod tally;

pub use store::QuorumStore;
