//! Tasks that run one step at a time, in the order that the exploration chooses.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

/// Owner of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskKind {
    User(usize),
    /// Calls `close` on this client.
    Closer(usize),
    /// A background task of an engine.
    Keeper(usize),
}

impl fmt::Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(n) => write!(f, "user{n}"),
            Self::Closer(n) => write!(f, "close of client{n}"),
            Self::Keeper(n) => write!(f, "keeper task {n}"),
        }
    }
}

#[derive(Default)]
struct Ready(AtomicBool);

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Task {
    kind: TaskKind,
    ready: Arc<Ready>,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

#[derive(Default)]
pub(super) struct Tasks {
    tasks: Vec<Task>,
    keepers: usize,
}

impl Tasks {
    pub(super) fn add(&mut self, kind: TaskKind, future: Pin<Box<dyn Future<Output = ()>>>) {
        let ready = Arc::new(Ready(AtomicBool::new(true)));
        self.tasks.push(Task {
            kind,
            ready,
            future,
        });
    }

    /// Takes the tasks that the engines have spawned.
    pub(super) fn adopt(&mut self) {
        for work in super::hook::take_spawned() {
            self.keepers += 1;
            self.add(TaskKind::Keeper(self.keepers), work);
        }
    }

    /// Indices of the tasks that are ready.
    pub(super) fn ready(&self) -> Vec<usize> {
        let ready = |(at, task): (usize, &Task)| task.ready.0.load(Ordering::SeqCst).then_some(at);
        self.tasks.iter().enumerate().filter_map(ready).collect()
    }

    pub(super) fn kind(&self, at: usize) -> TaskKind {
        self.tasks[at].kind
    }

    /// Polls one task once; `true` if it has ended.
    pub(super) fn poll(&mut self, at: usize) -> bool {
        let task = &mut self.tasks[at];
        task.ready.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(task.ready.clone());
        let over = task
            .future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready();
        if over {
            drop(self.tasks.remove(at));
        }
        over
    }

    pub(super) fn wake(&self, kind: TaskKind) {
        for task in self.tasks.iter().filter(|task| task.kind == kind) {
            task.ready.0.store(true, Ordering::SeqCst);
        }
    }

    /// Whether users or closers are still running.
    pub(super) fn has_callers(&self) -> bool {
        let caller = |task: &Task| !matches!(task.kind, TaskKind::Keeper(_));
        self.tasks.iter().any(caller)
    }

    pub(super) fn callers(&self) -> Vec<String> {
        let caller = |task: &&Task| !matches!(task.kind, TaskKind::Keeper(_));
        let text = |task: &Task| task.kind.to_string();
        self.tasks.iter().filter(caller).map(text).collect()
    }
}
