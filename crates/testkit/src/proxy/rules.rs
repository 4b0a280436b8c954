//! What is to happen to the bytes of a connection.

use std::time::Duration;

/// One way through the proxy.
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
/// use clinch_testkit::proxy::{Direction, Proxy};
/// let proxy = Proxy::start(upstream).await?;
/// proxy.cut_after(Direction::Up, 2); // the server gets half of the request
/// let mut client = TcpStream::connect(proxy.addr()).await?;
/// client.write_all(b"ping").await?;
/// assert!(client.read_exact(&mut [0; 4]).await.is_err());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server: requests.
    Up,
    /// From the server to the client: replies.
    Down,
}

/// What happens to the bytes of one direction.
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
/// use clinch_testkit::proxy::{Direction, Flow, Proxy};
/// let proxy = Proxy::start(upstream).await?;
/// proxy.flow(Direction::Down, Flow::Hold);
/// let mut client = TcpStream::connect(proxy.addr()).await?;
/// client.write_all(b"ping").await?;
/// let reply = client.readable();
/// assert!(tokio::time::timeout(std::time::Duration::from_millis(30), reply).await.is_err());
/// proxy.flow(Direction::Down, Flow::Pass); // what was held is flushed
/// client.read_exact(&mut [0; 4]).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flow {
    /// They pass.
    #[default]
    Pass,
    /// They pass so much later, in order.
    Delay(Duration),
    /// They are kept, and flushed when the flow becomes [`Pass`](Self::Pass) again.
    Hold,
    /// They vanish, and the connection stays open.
    Blackhole,
}

/// What becomes of a connection whose reply was swallowed.
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
/// use clinch_testkit::proxy::{Proxy, Then, lines};
/// let proxy = Proxy::with_splitter(upstream, lines()).await?;
/// proxy.swallow(1, Then::Stay); // the first reply is lost, the connection is not
/// let mut client = TcpStream::connect(proxy.addr()).await?;
/// client.write_all(b"one\ntwo\n").await?;
/// let mut reply = [0; 4];
/// client.read_exact(&mut reply).await?;
/// assert_eq!(&reply, b"two\n");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It is reset at once: the client knows that it lost something.
    Reset,
    /// It stays open, and later replies pass.
    Stay,
    /// This reply and all later ones are held: healing delivers them late.
    Hold,
    /// It stays open, and nothing ever comes again: half open.
    Silence,
}

/// The rules of one direction.
#[derive(Debug, Clone, Default)]
pub(super) struct Way {
    pub(super) flow: Flow,
    /// Countdown to the frame that is swallowed.
    pub(super) swallow: Option<(u64, Then)>,
    /// Bytes that may still pass before the reset.
    pub(super) cut: Option<u64>,
}

/// The rules of one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    pub(super) up: Way,
    pub(super) down: Way,
    pub(super) end: Option<End>,
    /// The client may go: what it sent reaches the server all the same.
    pub(super) outlives_client: bool,
}

/// How a connection ends on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Reset,
    HalfOpen,
}

/// What is to be done with a frame that has just been read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Pass(Duration),
    Drop,
}

impl Rules {
    pub(super) fn way(&mut self, direction: Direction) -> &mut Way {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    /// Says what becomes of a frame, and counts it if it is to be.
    pub(super) fn judge(&mut self, direction: Direction, counted: bool) -> Fate {
        let way = self.way(direction);
        let hit = match &mut way.swallow {
            Some((left, then)) if counted => {
                *left = left.saturating_sub(1);
                (*left == 0).then_some(*then)
            }
            _ => None,
        };
        if let Some(then) = hit {
            way.swallow = None;
            match then {
                Then::Reset => self.end = Some(End::Reset),
                Then::Stay => {}
                Then::Silence => way.flow = Flow::Blackhole,
                Then::Hold => {
                    way.flow = Flow::Hold;
                    return Fate::Pass(Duration::ZERO);
                }
            }
            return Fate::Drop;
        }
        match way.flow {
            Flow::Pass | Flow::Hold => Fate::Pass(Duration::ZERO),
            Flow::Delay(span) => Fate::Pass(span),
            Flow::Blackhole => Fate::Drop,
        }
    }

    /// How many bytes of a frame may go out before the cut; `None` for all of them.
    pub(super) fn allowance(&mut self, direction: Direction, wanted: usize) -> Option<usize> {
        let left = self.way(direction).cut.as_mut()?;
        let wanted = wanted as u64;
        if *left > wanted {
            *left -= wanted;
            return None;
        }
        let last = usize::try_from(*left).unwrap_or(usize::MAX);
        self.end = Some(End::Reset);
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_frame_is_swallowed_once() {
        let mut rules = Rules::default();
        rules.down.swallow = Some((2, Then::Stay));
        let pass = Fate::Pass(Duration::ZERO);
        assert_eq!(rules.judge(Direction::Down, true), pass);
        assert_eq!(rules.judge(Direction::Up, true), pass);
        assert_eq!(rules.judge(Direction::Down, false), pass);
        assert_eq!(rules.judge(Direction::Down, true), Fate::Drop);
        assert_eq!(rules.judge(Direction::Down, true), pass);
    }

    #[test]
    fn a_cut_lets_exactly_so_many_bytes_pass() {
        let mut rules = Rules::default();
        rules.up.cut = Some(5);
        assert_eq!(rules.allowance(Direction::Up, 3), None);
        assert_eq!(rules.allowance(Direction::Up, 3), Some(2));
        assert_eq!(rules.end, Some(End::Reset));
    }
}
