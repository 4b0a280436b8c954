//! Wakes: a grant is sent to the process that waits for it.
//!
//! Each waiting client binds a datagram socket next to its session file, under its id. So a client
//! that grants its claim has the address without a lookup. Datagrams are sent after the commit,
//! without waiting. A lost one costs only time, because waiters repeat their claims.

pub(crate) mod process_watch;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use clinch_core::machine::Woken;
use clinch_core::machine::codec::{Decoder, Encoder};
use clinch_core::store::{Wake, WakeRegistry, Wakes};
use clinch_core::{ClientId, RequestId, keeper};
use clinch_kit::closed::{Closed, Closing};
use clinch_kit::lock;
use tokio::sync::watch;

use crate::session::socket_path;

/// The longest path that a socket address can hold.
const SUN_PATH: usize = 107;
/// The longest datagram: a grant with its predecessor.
const LONGEST: usize = 64 * 1024;
/// The first byte of a datagram that carries a grant.
const GRANT: u8 = b'g';
/// The first byte of a datagram that signals new events.
const EVENTS: u8 = b'e';

/// The waiters of this client, and the sockets of all clients.
#[derive(Debug)]
pub(crate) struct WakeSocket {
    me: ClientId,
    folder: PathBuf,
    /// Set where the folder's path is too long for a socket address.
    handle: Option<File>,
    registry: WakeRegistry,
    sender: Mutex<Option<UnixDatagram>>,
    bound: Mutex<bool>,
    /// Signals new events to the streams of this client.
    events: watch::Sender<()>,
    closed: Closed,
}

impl WakeSocket {
    pub(crate) fn new(folder: &Path, me: ClientId) -> Self {
        let too_long = socket_path(folder, me).as_os_str().len() > SUN_PATH;
        Self {
            me,
            folder: folder.to_owned(),
            handle: too_long.then(|| File::open(folder).ok()).flatten(),
            registry: WakeRegistry::default(),
            sender: Mutex::default(),
            bound: Mutex::default(),
            events: watch::Sender::new(()),
            closed: Closed::default(),
        }
    }

    /// The address of a client, short enough in any case.
    fn address(&self, client: ClientId) -> PathBuf {
        match &self.handle {
            None => socket_path(&self.folder, client),
            Some(handle) => {
                let folder = format!("/proc/self/fd/{}", handle.as_raw_fd());
                socket_path(Path::new(&folder), client)
            }
        }
    }

    /// The wakes of one claim.
    pub(crate) fn register(self: &Arc<Self>, request: RequestId) -> Wakes {
        let wakes = self.registry.register(request);
        self.bind_once();
        wakes
    }

    /// Binds this client's socket, once.
    pub(crate) fn bind_once(self: &Arc<Self>) {
        let mut bound = lock(&self.bound);
        if *bound {
            return;
        }
        match self.bind() {
            Ok(()) => *bound = true,
            // Waiters still repeat their claims.
            Err(error) => tracing::warn!(%error, "cannot listen for wakes: waiting by polling"),
        }
    }

    fn bind(self: &Arc<Self>) -> io::Result<()> {
        let socket = UnixDatagram::bind(self.address(self.me))?;
        socket.set_nonblocking(true)?;
        let (wakes, closing) = (Arc::downgrade(self), self.closing());
        keeper::spawn(async move {
            match tokio::net::UnixDatagram::from_std(socket) {
                Ok(socket) => drop(closing.or(receive(socket, wakes)).await),
                Err(error) => tracing::warn!(%error, "cannot listen for wakes"),
            }
        })
        .map_err(io::Error::other)
    }

    /// Whether others can reach this client.
    pub(crate) fn is_bound(&self) -> bool {
        *lock(&self.bound)
    }

    /// Wakes a claim of this client; the wake is kept until the claim listens.
    pub(crate) fn deliver(&self, request: RequestId, wake: Wake) {
        self.registry.deliver(request, wake);
    }

    /// Whether a claim still waits for wakes.
    pub(crate) fn awaits(&self, request: RequestId) -> bool {
        self.registry.awaits(request)
    }

    /// Sends the grant of a queued claim to its client.
    pub(crate) fn send_grant(&self, woken: Woken) {
        if woken.client == self.me {
            return self.deliver(woken.request, Wake::Granted(woken.grant));
        }
        let mut encoder = Encoder::new();
        encoder.byte(GRANT);
        encoder.request(woken.request);
        encoder.grant(&woken.grant);
        self.send(woken.client, &encoder.finish());
    }

    /// Signals new events to a client; `false` if it cannot be reached.
    pub(crate) fn signal_events(&self, client: ClientId) -> bool {
        if client == self.me {
            self.events.send_replace(());
            return true;
        }
        self.send(client, &[EVENTS])
    }

    fn send(&self, client: ClientId, message: &[u8]) -> bool {
        let mut sender = lock(&self.sender);
        if sender.is_none() {
            *sender = UnixDatagram::unbound()
                .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
                .ok();
        }
        let sent = sender
            .as_ref()
            .map(|socket| socket.send_to(message, self.address(client)));
        match sent {
            Some(Err(error)) => error.kind() == io::ErrorKind::WouldBlock,
            Some(Ok(_)) => true,
            None => false,
        }
    }

    /// Changes whenever there are new events.
    pub(crate) fn event_signals(&self) -> watch::Receiver<()> {
        self.events.subscribe()
    }

    /// How many streams of events are open.
    pub(crate) fn event_streams(&self) -> usize {
        self.events.receiver_count()
    }

    /// Completes when the store is closed: ends its background tasks.
    pub(crate) fn closing(&self) -> Closing {
        self.closed.closing()
    }

    /// Ends every stream of wakes. The socket is removed with the session file.
    pub(crate) fn close(&self) {
        self.closed.close();
        self.registry.close();
    }
}

/// Reads datagrams until the store is dropped.
async fn receive(socket: tokio::net::UnixDatagram, wakes: Weak<WakeSocket>) {
    let mut buffer = vec![0; LONGEST];
    loop {
        let Ok(size) = socket.recv(&mut buffer).await else {
            return;
        };
        let Some(wakes) = wakes.upgrade() else {
            return;
        };
        let mut decoder = Decoder::new(buffer.get(..size).unwrap_or_default());
        match decoder.byte() {
            Some(GRANT) => {
                if let (Some(request), Some(grant)) = (decoder.request(), decoder.grant()) {
                    wakes.deliver(request, Wake::Granted(grant));
                }
            }
            Some(EVENTS) => {
                wakes.events.send_replace(());
            }
            _ => {}
        }
    }
}
