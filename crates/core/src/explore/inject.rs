//! Disturbances of a run: network faults, dropped calls, closed clients, jumps of time.

use std::time::Duration;

use tokio::sync::oneshot;

use super::hook;
use super::messages::{Message, Payload, Reply, Request, broken, refused, request_text};
use super::net::Cut;
use super::run::Run;
use super::tasks::TaskKind;
use crate::BootTime;
use crate::store::{ClaimReply, RenewReply};

impl Run {
    /// Injects a disturbance, or none; `true` if it injected one.
    pub(super) fn inject(&mut self) -> bool {
        let plan = self.harness.plan.clone();
        let roll = self.below(1000);
        let mut sum = 0;
        let mut hits = |per_mille: usize| {
            sum += per_mille;
            roll < sum && roll >= sum - per_mille
        };
        if hits(plan.cancels) {
            self.cancel()
        } else if hits(plan.closes) {
            self.close()
        } else if hits(plan.suspicions) {
            self.suspect()
        } else if hits(plan.cuts) {
            self.cut()
        } else if hits(plan.jumps) {
            self.jump_ahead()
        } else if hits(plan.refusals) {
            let count = u32::try_from(1 + self.below(3)).unwrap_or(1);
            hook::refuse(count);
            self.harness
                .note(|| format!("the next {count} spawns are refused"));
            self.record_choice(9_000);
            true
        } else {
            false
        }
    }

    /// Drops a call of a user.
    fn cancel(&mut self) -> bool {
        let calling: Vec<usize> = (0..self.harness.plan.users)
            .filter(|user| self.harness.calling[*user].get())
            .collect();
        if calling.is_empty() {
            return false;
        }
        let user = calling[self.below(calling.len())];
        self.harness.cancel[user].set(true);
        self.tasks.wake(TaskKind::User(user));
        self.harness
            .note(|| format!("user{user} is to drop its call"));
        self.record_choice(4_000);
        true
    }

    /// Closes a client.
    fn close(&mut self) -> bool {
        let at = self.below(self.harness.plan.clients);
        if self.harness.clients[at].closing.get() {
            return false;
        }
        let harness = self.harness.clone();
        let closing = async move {
            let client = &harness.clients[at];
            client.closing.set(true);
            let closed = client.clinch.close().await;
            harness.note(|| format!("client{at} is closed: {closed:?}"));
        };
        self.tasks.add(TaskKind::Closer(at), Box::pin(closing));
        self.harness.note(|| format!("client{at} is to be closed"));
        self.record_choice(5_000);
        true
    }

    fn suspect(&mut self) -> bool {
        let at = self.below(self.harness.plan.clients);
        self.harness
            .note(|| format!("client{at}'s store suspects all its holds"));
        self.harness.clients[at].store.suspect();
        self.record_choice(6_000);
        true
    }

    fn cut(&mut self) -> bool {
        let at = self.below(self.harness.plan.clients);
        let cut = [Cut::No, Cut::Refused, Cut::Held][self.below(3)];
        self.harness.net.state().clients[at].cut = cut;
        self.trouble(at);
        self.harness
            .note(|| format!("client{at} is cut off: {cut:?}"));
        self.record_choice(7_000);
        true
    }

    /// All clients are slow for a moment, or paused for a long time.
    fn jump_ahead(&mut self) -> bool {
        let lease = self.harness.plan.lease;
        let spans = [
            Duration::from_millis(1),
            Duration::from_millis(300),
            lease / 3,
            lease * 11 / 10,
        ];
        let span = spans[self.below(spans.len())];
        self.advance(span, true);
        self.harness.check();
        true
    }

    /// Records that a fault or a delay has touched the client.
    pub(super) fn trouble(&self, client: usize) {
        let now = self.client_clocks[client].now();
        self.harness.net.state().clients[client].trouble = Some(now);
    }

    /// A message arrives, or a network fault happens to it.
    pub(super) fn arrive(&mut self, at: usize, faults: bool) {
        let message = self.harness.net.state().messages.remove(at);
        self.record_choice(8_000 + message.id);
        let Message {
            client,
            payload,
            late,
            sent,
            ..
        } = message;
        if let Payload::Request(request, answer) = &payload
            && answer.as_ref().is_none_or(oneshot::Sender::is_closed)
            && self.harness.net.is_too_late(request, sent)
        {
            let text = request_text(request);
            self.harness
                .note(|| format!("client{client}'s {text} arrives, but too late"));
            return;
        }
        if faults
            && self
                .harness
                .rng
                .borrow_mut()
                .chance(self.harness.plan.faults)
        {
            self.trouble(client);
            let kind = self.below(6);
            self.inject_network_fault(client, payload, sent, kind);
            return;
        }
        match payload {
            Payload::Request(request, answer) => {
                let late = if late { "late, " } else { "" };
                self.harness
                    .note(|| format!("{late}client{client}'s {} arrives", request_text(&request)));
                self.harness.net.arrive(client, &request, answer);
            }
            Payload::Reply(reply, answer) => {
                self.harness
                    .note(|| format!("client{client} is answered: {}", self.reply_text(&reply)));
                drop(answer.send(reply));
            }
            Payload::Push(wake, to) => {
                self.harness
                    .note(|| format!("client{client} is woken by a push"));
                to.send(wake);
            }
        }
    }

    fn reply_text(&self, reply: &crate::Result<Reply>) -> String {
        match reply {
            Ok(Reply::Claim(ClaimReply::Granted(grant))) => {
                let token = crate::Token::new(grant.seq, 0).unwrap_or_else(crate::Token::zero);
                format!("granted {}", self.harness.token_text(token))
            }
            Ok(Reply::Claim(ClaimReply::Queued(_))) => "queued".to_owned(),
            Ok(Reply::Claim(ClaimReply::Busy(_))) => "busy".to_owned(),
            Ok(other) => format!("{other:?}"),
            Err(error) => error.to_string(),
        }
    }

    fn inject_network_fault(
        &mut self,
        client: usize,
        payload: Payload,
        sent: BootTime,
        kind: usize,
    ) {
        match payload {
            // Clients do not repeat these, so they are never lost, only late.
            Payload::Request(request @ (Request::Close | Request::Evict(..)), answer) => {
                let late = Payload::Request(request, answer);
                self.harness.net.send_late(client, late, sent);
            }
            Payload::Reply(reply @ Ok(Reply::Close | Reply::Evict(_)), answer) => {
                self.harness
                    .net
                    .send_late(client, Payload::Reply(reply, answer), sent);
            }
            Payload::Request(request, answer) => {
                let text = request_text(&request);
                let (fate, late, error) = match kind {
                    0 => ("is refused", false, Some(refused())),
                    1 => ("is lost silently", false, None),
                    2 => ("is lost, and its connection breaks", false, Some(broken())),
                    3 => ("is late, and its connection breaks", true, Some(broken())),
                    4 => ("is late, and its answer is lost", true, None),
                    // A duplicate of a claim needs a broken connection: once a reply has arrived, no copy
                    // is under way.
                    _ if matches!(request, Request::Claim(_)) => (
                        "arrives, once more later, and its connection breaks",
                        true,
                        Some(broken()),
                    ),
                    _ => ("arrives, and once more later", true, None),
                };
                self.harness
                    .note(|| format!("client{client}'s {text} {fate}"));
                if late {
                    let copy = Payload::Request(request.clone(), None);
                    self.harness.net.send_late(client, copy, sent);
                }
                let answer = match (&error, answer) {
                    (Some(error), Some(answer)) => {
                        drop(answer.send(Err(error.clone())));
                        None
                    }
                    (_, answer) => answer,
                };
                if kind == 5 {
                    self.harness.net.arrive(client, &request, answer);
                }
            }
            // One server of several did not answer.
            Payload::Reply(Ok(Reply::Renew(mut replies)), answer) if kind == 0 => {
                self.harness
                    .note(|| format!("client{client} is answered: one outcome unknown"));
                let at = self.below(replies.len());
                if let Some(reply) = replies.get_mut(at) {
                    *reply = RenewReply::Unknown;
                }
                drop(answer.send(Ok(Reply::Renew(replies))));
            }
            Payload::Reply(reply, answer) => match kind {
                0..=2 => {
                    self.harness.note(|| {
                        format!("a reply to client{client} is lost: its connection breaks")
                    });
                    drop(answer.send(Err(broken())));
                }
                3 => self
                    .harness
                    .note(|| format!("a reply to client{client} is lost silently")),
                _ => {
                    self.harness
                        .note(|| format!("a reply to client{client} is late"));
                    self.harness
                        .net
                        .send_late(client, Payload::Reply(reply, answer), sent);
                }
            },
            Payload::Push(wake, to) => match kind {
                0..=2 => self
                    .harness
                    .note(|| format!("a push to client{client} is lost")),
                _ => {
                    self.harness
                        .note(|| format!("a push to client{client} is late"));
                    self.harness
                        .net
                        .send_late(client, Payload::Push(wake, to), sent);
                }
            },
        }
    }
}
