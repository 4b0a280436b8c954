//! One connection through the proxy.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::ambush::Ambush;
use super::rules::{Direction, End, Fate, Flow, Rules, Then};
use super::split::{Split, Splitter};

/// A connection, to be disturbed by itself. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// # use tokio::net::{TcpListener, TcpStream};
/// # let server = TcpListener::bind("127.0.0.1:0").await?;
/// # let upstream = server.local_addr()?;
/// # tokio::spawn(async move { // it sends back what it gets
/// #     while let Ok((mut peer, _)) = server.accept().await {
/// #         tokio::spawn(async move {
/// #             let (mut from, mut to) = peer.split();
/// #             tokio::io::copy(&mut from, &mut to).await
/// #         });
/// #     }
/// # });
/// use clinch_testkit::proxy::Proxy;
/// let proxy = Proxy::start(upstream).await?;
/// let (mut a, mut b) = (TcpStream::connect(proxy.addr()).await?, [0; 4]);
/// a.write_all(b"ping").await?;
/// a.read_exact(&mut b).await?;
/// let link = proxy.links().remove(0);
/// assert!(link.is_open());
/// link.reset(); // this connection only
/// assert!(a.read_exact(&mut b).await.is_err());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Link(Arc<State>);

#[derive(Debug)]
struct State {
    rules: Mutex<Rules>,
    /// Rung at each change of the rules.
    bell: watch::Sender<()>,
    /// Directions that are still pumped.
    pumps: AtomicUsize,
    /// Replies that the server has given.
    replies: AtomicU64,
    /// The port from which the server sees it come.
    port: Option<u16>,
    /// Of all connections.
    ambush: Ambush,
}

impl Link {
    pub(super) fn start(
        client: TcpStream,
        server: TcpStream,
        rules: Rules,
        splitter: &Splitter,
        ambush: Ambush,
    ) -> Self {
        let link = Self(Arc::new(State {
            rules: Mutex::new(rules),
            bell: watch::Sender::new(()),
            pumps: AtomicUsize::new(2),
            replies: AtomicU64::new(0),
            port: server.local_addr().ok().map(|addr| addr.port()),
            ambush,
        }));
        // Small frames must not wait for each other.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        for (direction, from, to) in [
            (Direction::Up, from_client, to_server),
            (Direction::Down, from_server, to_client),
        ] {
            let pump = Pump {
                link: link.clone(),
                direction,
                split: splitter(),
                queue: VecDeque::new(),
                before: 0,
                waiting: None,
            };
            tokio::spawn(async move {
                let link = pump.link.clone();
                pump.run(from, to).await;
                link.0.pumps.fetch_sub(1, Ordering::SeqCst);
            });
        }
        link
    }

    /// Whether bytes can still pass in some direction.
    pub fn is_open(&self) -> bool {
        self.0.pumps.load(Ordering::SeqCst) > 0
    }

    /// How many replies the server has given, as far as the splitter counts them, whatever became of
    /// them on the way.
    pub fn replies(&self) -> u64 {
        self.0.replies.load(Ordering::Relaxed)
    }

    /// The port from which the server sees it come, if it was known at the start.
    pub fn port(&self) -> Option<u16> {
        self.0.port
    }

    /// What happens to the bytes of one direction.
    pub fn flow(&self, direction: Direction, flow: Flow) {
        self.change(|rules| rules.way(direction).flow = flow);
    }

    /// Loses the n-th reply from now (1 is the next).
    pub fn swallow(&self, n: u64, then: Then) {
        self.change(|rules| rules.down.swallow = Some((n, then)));
    }

    /// Resets the connection after so many more bytes of one direction.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.change(|rules| rules.way(direction).cut = Some(bytes));
    }

    /// Ends the connection with a reset on both sides.
    pub fn reset(&self) {
        self.change(|rules| rules.end = Some(End::Reset));
    }

    /// Closes the server's end and leaves the client's open and silent, as a server that lost its
    /// power does.
    pub fn half_open(&self) {
        self.change(|rules| rules.end = Some(End::HalfOpen));
    }

    /// Keeps what the client sends, even if it gives the connection up, until [`deliver`](Self::deliver).
    pub(super) fn keep(&self) {
        self.change(|rules| {
            *rules = Rules::default();
            rules.up.flow = Flow::Hold;
            rules.outlives_client = true;
        });
    }

    /// Lets the server have what was kept by [`Proxy::keep_requests`](super::Proxy::keep_requests).
    pub fn deliver(&self) {
        self.flow(Direction::Up, Flow::Pass);
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.0.rules.lock().unwrap());
        self.0.bell.send_replace(());
    }

    fn rules<T>(&self, with: impl FnOnce(&mut Rules) -> T) -> T {
        with(&mut self.0.rules.lock().unwrap())
    }
}

/// The most bytes that go out together.
const MOST: usize = 64 * 1024;

/// One direction of one connection.
struct Pump {
    link: Link,
    direction: Direction,
    split: Split,
    queue: VecDeque<(Instant, Vec<u8>)>,
    /// How many frames of the queue came before one from which on all are held: they still pass.
    before: usize,
    /// Who is told when they have.
    waiting: Option<oneshot::Sender<Link>>,
}

impl Pump {
    async fn run(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut bell = self.link.0.bell.subscribe();
        let mut buffer = vec![0; 64 * 1024];
        let mut ended = false;
        loop {
            let (end, flow) = self.link.rules(|r| (r.end, r.way(self.direction).flow));
            match end {
                Some(End::Reset) => {
                    zero_linger(from.as_ref());
                    // Dropping it would say goodbye first, and the reset would come too late.
                    return to.forget();
                }
                Some(End::HalfOpen) => return self.half_open(from, to).await,
                None => {}
            }
            if self.before == 0
                && let Some(waiting) = self.waiting.take()
            {
                // A test that has ended does not want it any more.
                let _ = waiting.send(self.link.clone());
            }
            if ended && self.queue.is_empty() {
                // The other side may be gone already; there is nobody to tell.
                let _ = to.shutdown().await;
                return;
            }
            let due = match (flow, self.queue.front()) {
                (_, None) => None,
                (Flow::Hold, Some(_)) if self.before == 0 => None,
                (Flow::Pass | Flow::Hold, Some(_)) => Some(Instant::now()),
                (_, Some((due, _))) => Some(*due),
            };
            tokio::select! {
                biased;
                _ = bell.changed() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    if self.write(&mut to).await.is_err() && !self.is_replies_of_the_gone() {
                        self.link.reset();
                    }
                }
                read = from.read(&mut buffer), if !ended => match read {
                    Ok(0) => ended = true,
                    Ok(n) => self.take(&buffer[..n]),
                    Err(_) if self.is_requests_of_the_gone() => ended = true,
                    Err(_) => self.link.reset(),
                },
            }
        }
    }

    /// A client that is gone reads no replies, and that is no reason to keep its requests back.
    fn is_replies_of_the_gone(&self) -> bool {
        self.direction == Direction::Down && self.link.rules(|rules| rules.outlives_client)
    }

    fn is_requests_of_the_gone(&self) -> bool {
        self.direction == Direction::Up && self.link.rules(|rules| rules.outlives_client)
    }

    fn take(&mut self, bytes: &[u8]) {
        for frame in (self.split)(bytes) {
            if frame.counted && self.direction == Direction::Down {
                self.link.0.replies.fetch_add(1, Ordering::Relaxed);
                if let Some(waiting) = self.link.0.ambush.reply() {
                    self.before = self.queue.len();
                    self.waiting = Some(waiting);
                    self.link.flow(Direction::Down, Flow::Hold);
                }
            }
            let judged = self.link.rules(|rules| {
                let held = rules.way(self.direction).flow == Flow::Hold;
                let fate = rules.judge(self.direction, frame.counted);
                (fate, !held && rules.way(self.direction).flow == Flow::Hold)
            });
            if judged.1 {
                self.before = self.queue.len();
            }
            if let Fate::Pass(after) = judged.0 {
                self.queue.push_back((Instant::now() + after, frame.bytes));
            }
        }
        // The rules may have ended the connection: the other direction is to know.
        self.link.0.bell.send_replace(());
    }

    async fn write(&mut self, to: &mut OwnedWriteHalf) -> io::Result<()> {
        let Some((_, mut frame)) = self.queue.pop_front() else {
            return Ok(());
        };
        self.before = self.before.saturating_sub(1);
        // What may pass goes out together: a server that sends much unasked must not wait for us.
        let plain = |rules: &mut Rules| {
            let way = rules.way(self.direction);
            way.flow == Flow::Pass && way.cut.is_none()
        };
        if self.link.rules(plain) {
            while let Some((_, next)) = self.queue.front()
                && frame.len() + next.len() <= MOST
            {
                frame.extend_from_slice(next);
                self.queue.pop_front();
                self.before = self.before.saturating_sub(1);
            }
        }
        match self
            .link
            .rules(|r| r.allowance(self.direction, frame.len()))
        {
            None => to.write_all(&frame).await,
            Some(last) => {
                let sent = to.write_all(&frame[..last]).await;
                // Bytes that were let through must arrive: a reset would overtake them.
                tokio::task::yield_now().await;
                self.link.0.bell.send_replace(());
                sent
            }
        }
    }

    /// Keeps the client's half of this direction, silently, until the connection is reset.
    async fn half_open(self, from: OwnedReadHalf, to: OwnedWriteHalf) {
        let client: (Option<OwnedReadHalf>, Option<OwnedWriteHalf>) = match self.direction {
            Direction::Up => (Some(from), None),
            Direction::Down => (None, Some(to)),
        };
        let mut bell = self.link.0.bell.subscribe();
        while self.link.rules(|r| r.end) == Some(End::HalfOpen) {
            if bell.changed().await.is_err() {
                break;
            }
        }
        if let Some(from) = &client.0 {
            zero_linger(from.as_ref());
        }
        if let Some(to) = client.1 {
            to.forget();
        }
    }
}

/// Makes the socket end with a reset when it is closed.
pub(super) fn zero_linger(socket: &TcpStream) {
    // A socket that is gone already needs no reset.
    let _ = socket.set_zero_linger();
}
