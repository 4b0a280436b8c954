//! A TCP proxy that a test makes misbehave.
//!
//! It stands between a client and a server on the same machine, and does to each connection, and to
//! each direction of it, what networks do: delay, hold and flush, lose one direction, leave a
//! connection half open, reset it, swallow the n-th reply, cut after n bytes, refuse to connect.
//! Everything is counted in frames or bytes, not in time, so a fault hits the same request in
//! every run.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! # use tokio::net::{TcpListener, TcpStream};
//! # let server = TcpListener::bind("127.0.0.1:0").await?;
//! # let upstream = server.local_addr()?;
//! # tokio::spawn(async move { // it sends back what it gets
//! #     while let Ok((mut peer, _)) = server.accept().await {
//! #         tokio::spawn(async move {
//! #             let (mut from, mut to) = peer.split();
//! #             tokio::io::copy(&mut from, &mut to).await
//! #         });
//! #     }
//! # });
//! use clinch_testkit::proxy::{Direction, Flow, Proxy, Then};
//! let proxy = Proxy::start(upstream).await?;
//! let mut client = TcpStream::connect(proxy.addr()).await?;
//! proxy.swallow(1, Then::Reset);                       // the next reply is lost
//! client.write_all(b"ping").await?;
//! assert!(client.read_exact(&mut [0; 4]).await.is_err());
//! proxy.flow(Direction::Down, Flow::Blackhole);        // requests pass, replies do not
//! proxy.flow(Direction::Down, Flow::Pass);             // healed
//! # Ok(()) }
//! ```

mod ambush;
mod http2;
mod jute;
mod link;
mod mysql;
mod places;
mod resp;
mod rules;
mod split;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub use http2::http2;
pub use jute::jute;
pub use link::Link;
pub use mysql::mysql;
pub use places::{Places, resp_with_places};
pub use resp::resp;
pub use rules::{Direction, Flow, Then};
pub use split::{Frame, Split, Splitter, chunks, lines};

use ambush::Ambush;
use rules::Rules;

use crate::servers::{Engine, Server};

/// A running proxy; it stops, and resets its connections, when it is dropped.
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
/// let mut client = TcpStream::connect(proxy.addr()).await?;
/// let mut reply = [0; 4];
/// client.write_all(b"ping").await?;
/// client.read_exact(&mut reply).await?;
/// assert_eq!((&reply, proxy.open()), (b"ping", 1));
/// proxy.down();
/// assert!(client.read_exact(&mut reply).await.is_err());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    upstream: SocketAddr,
    splitter: Splitter,
    /// What a new connection starts with.
    rules: Mutex<Rules>,
    links: Mutex<Vec<Link>>,
    refuse: AtomicBool,
    refused: AtomicUsize,
    ambush: Ambush,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("upstream", &self.upstream)
            .finish_non_exhaustive()
    }
}

impl Proxy {
    /// Starts a proxy to `upstream` on a free port; a reply is whatever one read brings.
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        Self::with_splitter(upstream, chunks()).await
    }

    /// Starts a proxy that cuts the bytes of each direction into frames, so that replies are
    /// counted exactly.
    pub async fn with_splitter(upstream: SocketAddr, splitter: Splitter) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            splitter,
            rules: Mutex::default(),
            links: Mutex::default(),
            refuse: AtomicBool::new(false),
            refused: AtomicUsize::new(0),
            ambush: Ambush::default(),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self {
            addr,
            shared,
            accepting,
        })
    }

    /// Starts a proxy before a server, which cuts its protocol into frames.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use clinch_testkit::{proxy::Proxy, servers::Redis};
    /// let redis = Redis::start()?;
    /// let proxy = Proxy::before(&redis).await?;
    /// let url = format!("redis://{}", proxy.addr()); // for clients
    /// # Ok(()) }
    /// ```
    pub async fn before<E: Engine>(server: &Server<E>) -> io::Result<Self> {
        Self::with_splitter(server.socket_address(), E::splitter()).await
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Every connection so far, in the order of their arrival, ended ones too.
    pub fn links(&self) -> Vec<Link> {
        self.shared.links.lock().unwrap().clone()
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.links().iter().filter(|link| link.is_open()).count()
    }

    /// How many replies the server has given so far, on all connections: as many as there were
    /// requests, if the splitter is that of the protocol.
    pub fn replies(&self) -> u64 {
        self.links().iter().map(Link::replies).sum()
    }

    /// How many connections were refused.
    pub fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::SeqCst)
    }

    /// What happens to the bytes of one direction, on present and future connections.
    pub fn flow(&self, direction: Direction, flow: Flow) {
        self.each(|rules| rules.way(direction).flow = flow);
    }

    /// Loses the n-th reply from now (1 is the next) of each connection.
    pub fn swallow(&self, n: u64, then: Then) {
        self.each(|rules| rules.down.swallow = Some((n, then)));
    }

    /// Stops the n-th reply from now, of all connections together: completes with its connection,
    /// whose replies are held from that one on.
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
    /// use clinch_testkit::proxy::{Proxy, lines};
    /// let proxy = Proxy::with_splitter(upstream, lines()).await?;
    /// let caught = proxy.catch(2);
    /// let mut client = TcpStream::connect(proxy.addr()).await?;
    /// client.write_all(b"one\ntwo\n").await?;
    /// client.read_exact(&mut [0; 4]).await?; // the first one passes
    /// caught.await?.reset(); // the second one is here, and never arrives
    /// assert!(client.read_exact(&mut [0; 4]).await.is_err());
    /// # Ok(()) }
    /// ```
    pub fn catch(&self, n: u64) -> tokio::sync::oneshot::Receiver<Link> {
        self.shared.ambush.lay(n)
    }

    /// From now on keeps what clients send on the connections that are open, also after they have given
    /// them up, and gives these connections away: no other fault, healing or end of this proxy touches them.
    /// New connections are served as before. The server gets what was kept when a test
    /// [delivers](Link::deliver) it, however late that is.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// # use tokio::net::{TcpListener, TcpStream};
    /// let server = TcpListener::bind("127.0.0.1:0").await?;
    /// use clinch_testkit::proxy::Proxy;
    /// let proxy = Proxy::start(server.local_addr()?).await?;
    /// let mut client = TcpStream::connect(proxy.addr()).await?;
    /// let (mut served, _) = server.accept().await?;
    /// client.write_all(b"one").await?;
    /// served.read_exact(&mut [0; 3]).await?;
    /// let kept = proxy.keep_requests();
    /// client.write_all(b"two").await?;
    /// drop(client); // it has given up
    /// drop(proxy);
    /// kept[0].deliver(); // and still
    /// let mut late = Vec::new();
    /// served.read_to_end(&mut late).await?;
    /// assert_eq!(late, b"two");
    /// # Ok(()) }
    /// ```
    pub fn keep_requests(&self) -> Vec<Link> {
        let links = std::mem::take(&mut *self.shared.links.lock().unwrap());
        let open: Vec<_> = links.into_iter().filter(Link::is_open).collect();
        open.iter().for_each(Link::keep);
        open
    }

    /// Resets each connection after so many more bytes of one direction.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.each(|rules| rules.way(direction).cut = Some(bytes));
    }

    /// Ends every open connection with a reset; new ones are served as before.
    pub fn reset(&self) {
        self.links().iter().for_each(Link::reset);
    }

    /// Closes the server's end of every open connection and leaves the client's open and silent.
    pub fn half_open(&self) {
        self.links().iter().for_each(Link::half_open);
    }

    /// Refuses new connections (each is reset at once), or serves them again.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refuse.store(refuse, Ordering::SeqCst);
    }

    /// Cuts the server off altogether: resets what is open and refuses what comes.
    pub fn down(&self) {
        self.refuse(true);
        self.reset();
    }

    /// Undoes every fault; bytes that were held are flushed.
    pub fn heal(&self) {
        self.refuse(false);
        self.shared.ambush.lift();
        self.each(|rules| *rules = Rules::default());
    }

    fn each(&self, change: impl Fn(&mut Rules)) {
        change(&mut self.shared.rules.lock().unwrap());
        self.links().iter().for_each(|link| link.change(&change));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.reset();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let served = match shared.refuse.load(Ordering::SeqCst) {
            true => None,
            false => TcpStream::connect(shared.upstream).await.ok(),
        };
        let Some(server) = served else {
            shared.refused.fetch_add(1, Ordering::SeqCst);
            link::zero_linger(&client);
            continue;
        };
        // The rules are read under the lock that `each` takes, so no change falls between.
        let rules = shared.rules.lock().unwrap();
        let ambush = shared.ambush.clone();
        let link = Link::start(client, server, rules.clone(), &shared.splitter, ambush);
        shared.links.lock().unwrap().push(link);
    }
}
