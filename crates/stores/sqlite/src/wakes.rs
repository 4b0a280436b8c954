//! Wakes: a grant goes straight to the process that waits for it.
//!
//! Each waiting client binds a datagram socket next to its session file, under its id, so whoever
//! grants its claim knows the address without asking. Datagrams are sent after the commit, without
//! waiting; a lost one costs time and nothing else, because waiters repeat their claims.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use clinch_core::machine::Woken;
use clinch_core::machine::codec::{Decoder, Encoder};
use clinch_core::store::{Wake, WakeRegistry, Wakes};
use clinch_core::{ClientId, RequestId, keeper};
use tokio::sync::watch;

use crate::session::door;

/// The longest path that a socket address can hold.
const SUN_PATH: usize = 107;
/// The longest datagram: a grant with its predecessor.
const LONGEST: usize = 64 * 1024;
/// The first byte of a datagram that carries a grant.
const GRANT: u8 = b'g';
/// The first byte of a datagram that says: there are new events.
const NUDGE: u8 = b'e';

/// Who waits in this client, and the sockets of all.
#[derive(Debug)]
pub(crate) struct Bells {
    me: ClientId,
    folder: PathBuf,
    /// Set where the folder's path is too long for a socket address.
    handle: Option<File>,
    registry: WakeRegistry,
    sender: Mutex<Option<UnixDatagram>>,
    bound: Mutex<bool>,
    nudged: watch::Sender<()>,
    closed: watch::Sender<bool>,
}

impl Bells {
    pub(crate) fn new(folder: &Path, me: ClientId) -> Self {
        let too_long = door(folder, me).as_os_str().len() > SUN_PATH;
        Self {
            me,
            folder: folder.to_owned(),
            handle: too_long.then(|| File::open(folder).ok()).flatten(),
            registry: WakeRegistry::default(),
            sender: Mutex::default(),
            bound: Mutex::default(),
            nudged: watch::Sender::new(()),
            closed: watch::Sender::new(false),
        }
    }

    /// The address of a client, short enough in any case.
    fn address(&self, client: ClientId) -> PathBuf {
        match &self.handle {
            None => door(&self.folder, client),
            Some(handle) => {
                let folder = format!("/proc/self/fd/{}", handle.as_raw_fd());
                door(Path::new(&folder), client)
            }
        }
    }

    /// Wakes for one claim.
    pub(crate) fn register(self: &Arc<Self>, request: RequestId) -> Wakes {
        let wakes = self.registry.register(request);
        self.listen();
        wakes
    }

    /// Binds this client's socket, once.
    pub(crate) fn listen(self: &Arc<Self>) {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
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
        let (bells, closed) = (Arc::downgrade(self), self.closing());
        keeper::spawn(async move {
            match tokio::net::UnixDatagram::from_std(socket) {
                Ok(socket) => closed.or(listen(socket, bells)).await,
                Err(error) => tracing::warn!(%error, "cannot listen for wakes"),
            }
        })
        .map_err(io::Error::other)
    }

    /// Whether others can reach this client.
    pub(crate) fn is_bound(&self) -> bool {
        *self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a wake to a claim of this client, or keeps it until the claim listens.
    pub(crate) fn deliver(&self, request: RequestId, wake: Wake) {
        self.registry.deliver(request, wake);
    }

    /// Whether a claim still waits for wakes.
    pub(crate) fn awaits(&self, request: RequestId) -> bool {
        self.registry.awaits(request)
    }

    /// Tells a client that its claim has been granted.
    pub(crate) fn tell(&self, woken: Woken) {
        if woken.client == self.me {
            return self.deliver(woken.request, Wake::Granted(woken.grant));
        }
        let mut encoder = Encoder::new();
        encoder.byte(GRANT);
        encoder.request(woken.request);
        encoder.grant(&woken.grant);
        self.send(woken.client, &encoder.finish());
    }

    /// Tells a client that there are new events; `false` if it cannot be reached.
    pub(crate) fn nudge(&self, client: ClientId) -> bool {
        if client == self.me {
            self.nudged.send_replace(());
            return true;
        }
        self.send(client, &[NUDGE])
    }

    fn send(&self, client: ClientId, message: &[u8]) -> bool {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub(crate) fn nudges(&self) -> watch::Receiver<()> {
        self.nudged.subscribe()
    }

    /// How many streams of events are open.
    pub(crate) fn listeners(&self) -> usize {
        self.nudged.receiver_count()
    }

    /// Ends what runs in the background for this store.
    pub(crate) fn closing(&self) -> Closing {
        Closing(self.closed.subscribe())
    }

    /// Ends every stream of wakes and removes the socket.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
        // The socket goes with the session file.
        self.registry.close();
    }
}

/// The moment at which the store is closed.
#[derive(Debug)]
pub(crate) struct Closing(watch::Receiver<bool>);

impl Closing {
    /// Completes when the store has been closed or is gone.
    pub(crate) async fn wait(&mut self) {
        let _ = self.0.wait_for(|closed| *closed).await;
    }

    /// Runs a future until then.
    pub(crate) async fn or(mut self, future: impl Future<Output = ()>) {
        tokio::select! {
            () = self.wait() => {}
            () = future => {}
        }
    }
}

/// Reads datagrams until the store has gone.
async fn listen(socket: tokio::net::UnixDatagram, bells: Weak<Bells>) {
    let mut buffer = vec![0; LONGEST];
    loop {
        let Ok(size) = socket.recv(&mut buffer).await else {
            return;
        };
        let Some(bells) = bells.upgrade() else {
            return;
        };
        let mut decoder = Decoder::new(buffer.get(..size).unwrap_or_default());
        match decoder.byte() {
            Some(GRANT) => {
                if let (Some(request), Some(grant)) = (decoder.request(), decoder.grant()) {
                    bells.deliver(request, Wake::Granted(grant));
                }
            }
            Some(NUDGE) => {
                bells.nudged.send_replace(());
            }
            _ => {}
        }
    }
}
