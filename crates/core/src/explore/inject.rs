//! What disturbs a run: faults of the network, dropped calls, closed clients, time that jumps.

use std::time::Duration;

use tokio::sync::oneshot;

use super::hook;
use super::net::Cut;
use super::run::Run;
use super::tasks::Kind;
use super::wire::{Flight, Reply, Request, What, broken, refused, request_text};
use crate::BootTime;
use crate::store::{ClaimReply, RenewReply};

impl Run {
    /// Disturbs something, if it is time to; `true` when it did.
    pub(super) fn disturb(&mut self) -> bool {
        let plan = self.lab.plan.clone();
        let dice = self.below(1000);
        let mut sum = 0;
        let mut hits = |per_mille: usize| {
            sum += per_mille;
            dice < sum && dice >= sum - per_mille
        };
        if hits(plan.cancels) {
            self.cancel()
        } else if hits(plan.closes) {
            self.close()
        } else if hits(plan.doubts) {
            self.doubt()
        } else if hits(plan.cuts) {
            self.cut()
        } else if hits(plan.jumps) {
            self.jump()
        } else if hits(plan.refusals) {
            let count = u32::try_from(1 + self.below(3)).unwrap_or(1);
            hook::refuse(count);
            self.lab
                .note(|| format!("the next {count} spawns are refused"));
            self.mark(9_000);
            true
        } else {
            false
        }
    }

    /// Drops the call of a user.
    fn cancel(&mut self) -> bool {
        let calling: Vec<usize> = (0..self.lab.plan.users)
            .filter(|user| self.lab.calling[*user].get())
            .collect();
        if calling.is_empty() {
            return false;
        }
        let user = calling[self.below(calling.len())];
        self.lab.cancel[user].set(true);
        self.tasks.wake(Kind::User(user));
        self.lab.note(|| format!("user{user} is to drop its call"));
        self.mark(4_000);
        true
    }

    /// Closes a client.
    fn close(&mut self) -> bool {
        let at = self.below(self.lab.plan.clients);
        if self.lab.sides[at].closing.get() {
            return false;
        }
        let lab = self.lab.clone();
        let closing = async move {
            let side = &lab.sides[at];
            side.closing.set(true);
            let closed = side.clinch.close().await;
            lab.note(|| format!("client{at} is closed: {closed:?}"));
        };
        self.tasks.add(Kind::Closer(at), Box::pin(closing));
        self.lab.note(|| format!("client{at} is to be closed"));
        self.mark(5_000);
        true
    }

    fn doubt(&mut self) -> bool {
        let at = self.below(self.lab.plan.clients);
        self.lab
            .note(|| format!("client{at}'s store doubts all its holds"));
        self.lab.sides[at].store.doubt();
        self.mark(6_000);
        true
    }

    fn cut(&mut self) -> bool {
        let at = self.below(self.lab.plan.clients);
        let how = [Cut::No, Cut::Refused, Cut::Held][self.below(3)];
        self.lab.net.state().clients[at].cut = how;
        self.trouble(at);
        self.lab.note(|| format!("client{at} is cut off: {how:?}"));
        self.mark(7_000);
        true
    }

    /// Everybody is slow for a moment, or is paused for a long time.
    fn jump(&mut self) -> bool {
        let lease = self.lab.plan.lease;
        let spans = [
            Duration::from_millis(1),
            Duration::from_millis(300),
            lease / 3,
            lease * 11 / 10,
        ];
        let span = spans[self.below(spans.len())];
        self.advance(span, true);
        self.lab.check();
        true
    }

    pub(super) fn trouble(&self, client: usize) {
        let now = self.hands[client].now();
        self.lab.net.state().clients[client].trouble = Some(now);
    }

    /// A message arrives, unless something goes wrong with it.
    pub(super) fn arrive(&mut self, at: usize, faults: bool) {
        let flight = self.lab.net.state().flights.remove(at);
        self.mark(8_000 + flight.id);
        let Flight {
            client,
            what,
            late,
            sent,
            ..
        } = flight;
        if let What::Request(request, answer) = &what
            && answer.as_ref().is_none_or(oneshot::Sender::is_closed)
            && self.lab.net.is_too_late(request, sent)
        {
            let text = request_text(request);
            self.lab
                .note(|| format!("client{client}'s {text} arrives, but too late"));
            return;
        }
        if faults && self.lab.rng.borrow_mut().chance(self.lab.plan.faults) {
            self.trouble(client);
            let kind = self.below(6);
            self.go_wrong(client, what, sent, kind);
            return;
        }
        match what {
            What::Request(request, answer) => {
                let late = if late { "late, " } else { "" };
                self.lab
                    .note(|| format!("{late}client{client}'s {} arrives", request_text(&request)));
                self.lab.net.arrive(client, &request, answer);
            }
            What::Reply(reply, answer) => {
                self.lab
                    .note(|| format!("client{client} is answered: {}", self.reply_text(&reply)));
                drop(answer.send(reply));
            }
            What::Push(wake, to) => {
                self.lab
                    .note(|| format!("client{client} is woken by a push"));
                to.send(wake);
            }
        }
    }

    fn reply_text(&self, reply: &crate::Result<Reply>) -> String {
        match reply {
            Ok(Reply::Claim(ClaimReply::Granted(grant))) => {
                let token = crate::Token::new(grant.seq, 0).unwrap_or_else(crate::Token::zero);
                format!("granted {}", self.lab.token_text(token))
            }
            Ok(Reply::Claim(ClaimReply::Queued(_))) => "queued".to_owned(),
            Ok(Reply::Claim(ClaimReply::Busy(_))) => "busy".to_owned(),
            Ok(other) => format!("{other:?}"),
            Err(error) => error.to_string(),
        }
    }

    fn go_wrong(&mut self, client: usize, what: What, sent: BootTime, kind: usize) {
        match what {
            // Nobody repeats these, and a store gives them up by itself: they take their time.
            What::Request(request @ (Request::Close | Request::Evict(..)), answer) => {
                let late = What::Request(request, answer);
                self.lab.net.put_late(client, late, sent);
            }
            What::Reply(reply @ Ok(Reply::Close | Reply::Evict(_)), answer) => {
                self.lab
                    .net
                    .put_late(client, What::Reply(reply, answer), sent);
            }
            What::Request(request, answer) => {
                let text = request_text(&request);
                let (fate, late, error) = match kind {
                    0 => ("is refused", false, Some(refused())),
                    1 => ("is lost without a sound", false, None),
                    2 => ("is lost, and its connection breaks", false, Some(broken())),
                    3 => ("is late, and its connection breaks", true, Some(broken())),
                    4 => ("is late, and its answer is lost", true, None),
                    // A claim whose reply has arrived is not under way any more.
                    _ if matches!(request, Request::Claim(_)) => (
                        "arrives, once more later, and its connection breaks",
                        true,
                        Some(broken()),
                    ),
                    _ => ("arrives, and once more later", true, None),
                };
                self.lab.note(|| format!("client{client}'s {text} {fate}"));
                if late {
                    let copy = What::Request(request.clone(), None);
                    self.lab.net.put_late(client, copy, sent);
                }
                let answer = match (&error, answer) {
                    (Some(error), Some(answer)) => {
                        drop(answer.send(Err(error.clone())));
                        None
                    }
                    (_, answer) => answer,
                };
                if kind == 5 {
                    self.lab.net.arrive(client, &request, answer);
                }
            }
            // One server of several did not answer.
            What::Reply(Ok(Reply::Renew(mut replies)), answer) if kind == 0 => {
                self.lab
                    .note(|| format!("client{client} is answered: not all is known"));
                let at = self.below(replies.len());
                if let Some(reply) = replies.get_mut(at) {
                    *reply = RenewReply::Unknown;
                }
                drop(answer.send(Ok(Reply::Renew(replies))));
            }
            What::Reply(reply, answer) => match kind {
                0..=2 => {
                    self.lab.note(|| {
                        format!("a reply to client{client} is lost: its connection breaks")
                    });
                    drop(answer.send(Err(broken())));
                }
                3 => self
                    .lab
                    .note(|| format!("a reply to client{client} is lost without a sound")),
                _ => {
                    self.lab
                        .note(|| format!("a reply to client{client} is late"));
                    self.lab
                        .net
                        .put_late(client, What::Reply(reply, answer), sent);
                }
            },
            What::Push(wake, to) => match kind {
                0..=2 => self
                    .lab
                    .note(|| format!("a push to client{client} is lost")),
                _ => {
                    self.lab
                        .note(|| format!("a push to client{client} is late"));
                    self.lab.net.put_late(client, What::Push(wake, to), sent);
                }
            },
        }
    }
}
