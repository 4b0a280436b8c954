use tokio::sync::{Semaphore, mpsc};

use super::*;

/// Doubles numbers, when it is allowed to; panics at 13.
struct Doubler {
    begun: mpsc::UnboundedSender<Vec<u32>>,
    allowed: Arc<Semaphore>,
    most: usize,
    parallel: usize,
    patience: Mutex<Option<Duration>>,
}

impl Runner for Doubler {
    type Key = u8;
    type Step = u32;
    type Answer = u32;

    async fn run(&self, _: &Batcher<Self>, _: &u8, jobs: Vec<Job<Self>>) {
        let steps = jobs.iter().map(|job| job.step).collect();
        self.begun.send(steps).unwrap();
        self.allowed.acquire().await.unwrap().forget();
        for job in jobs {
            assert_ne!(job.step, 13, "a test panics");
            job.reply.send(Ok(2 * job.step));
        }
    }

    fn most(&self) -> usize {
        self.most
    }

    fn parallel(&self, step: &u32) -> usize {
        match *step {
            100.. => self.parallel + 1,
            _ => self.parallel,
        }
    }

    fn patience(&self) -> Option<Duration> {
        *lock(&self.patience)
    }
}

struct Bench {
    batcher: Batcher<Doubler>,
    begun: mpsc::UnboundedReceiver<Vec<u32>>,
    allowed: Arc<Semaphore>,
}

fn bench(change: impl FnOnce(&mut Doubler)) -> Bench {
    let (begun, seen) = mpsc::unbounded_channel();
    let allowed = Arc::new(Semaphore::new(0));
    let mut runner = Doubler {
        begun,
        allowed: allowed.clone(),
        most: usize::MAX,
        parallel: 1,
        patience: Mutex::default(),
    };
    change(&mut runner);
    Bench {
        batcher: Batcher::new(runner),
        begun: seen,
        allowed,
    }
}

impl Bench {
    async fn begun(&mut self) -> Vec<u32> {
        self.begun.recv().await.unwrap()
    }

    /// Waits until no pump is counted: the last one ends a moment after its answers.
    async fn idle(&self) {
        while !lock(&self.batcher.0.queues).is_empty() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn steps_gather_while_a_run_is_under_way() {
    let mut bench = bench(|_| {});
    let one = bench.batcher.submit(0, 1);
    assert_eq!(bench.begun().await, [1]);
    let (two, three) = (bench.batcher.submit(0, 2), bench.batcher.submit(0, 3));
    // Another key does not wait.
    let other = bench.batcher.submit(1, 4);
    assert_eq!(bench.begun().await, [4]);
    bench.allowed.add_permits(2);
    assert_eq!(one.await.unwrap() + other.await.unwrap(), 10);
    assert_eq!(bench.begun().await, [2, 3]);
    bench.allowed.add_permits(1);
    assert_eq!((two.await.unwrap(), three.await.unwrap()), (4, 6));
    bench.idle().await;
    // It starts again.
    bench.allowed.add_permits(1);
    assert_eq!(bench.batcher.submit(0, 5).await.unwrap(), 10);
}

#[tokio::test]
async fn a_dropped_caller_undoes_nothing_and_disturbs_no_other() {
    let mut bench = bench(|_| {});
    drop(bench.batcher.submit(0, 1));
    assert_eq!(bench.begun().await, [1]);
    let (two, three) = (bench.batcher.submit(0, 2), bench.batcher.submit(0, 3));
    drop(two);
    bench.allowed.add_permits(2);
    assert_eq!(bench.begun().await, [2, 3]);
    assert_eq!(three.await.unwrap(), 6);
    bench.idle().await;
}

#[tokio::test]
async fn a_run_has_a_largest_size() {
    let mut bench = bench(|runner| runner.most = 2);
    let all: Vec<_> = (0..6).map(|n| bench.batcher.submit(0, n)).collect();
    bench.allowed.add_permits(6);
    let mut runs = Vec::new();
    for pending in all {
        pending.await.unwrap();
    }
    while let Ok(run) = bench.begun.try_recv() {
        runs.push(run);
    }
    assert!(runs.iter().all(|run| run.len() <= 2), "{runs:?}");
    assert_eq!(runs.concat(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn as_many_runs_are_under_way_as_the_step_allows() {
    let mut bench = bench(|runner| (runner.most, runner.parallel) = (1, 2));
    let _pending: Vec<_> = [1, 2, 3].map(|n| bench.batcher.submit(0, n)).into();
    let mut begun = [bench.begun().await, bench.begun().await].concat();
    begun.sort_unstable();
    assert_eq!(begun, [1, 2]);
    assert_eq!(lock(&bench.batcher.0.queues)[&0].pumps, 2);
    // A step that may start a third run lets one that waits begin.
    let urgent = bench.batcher.submit(0, 100);
    assert_eq!(bench.begun().await, [3]);
    bench.allowed.add_permits(4);
    assert_eq!(urgent.await.unwrap(), 200);
    bench.idle().await;
}

#[tokio::test]
async fn a_panic_costs_the_steps_of_its_run_only() {
    let mut bench = bench(|_| {});
    let bad = bench.batcher.submit(0, 13);
    assert_eq!(bench.begun().await, [13]);
    let good = bench.batcher.submit(0, 1);
    bench.allowed.add_permits(2);
    let error = bad.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.may_have_taken_effect());
    assert_eq!(good.await.unwrap(), 2);
    bench.idle().await;
}

#[tokio::test]
async fn a_step_that_waits_too_long_is_not_sent() {
    let mut bench = bench(|_| {});
    let one = bench.batcher.submit(0, 1);
    assert_eq!(bench.begun().await, [1]);
    let set = |patience| *lock(&bench.batcher.runner().patience) = Some(patience);
    let late = bench.batcher.submit(0, 2);
    set(Duration::ZERO);
    bench.allowed.add_permits(1);
    assert_eq!(one.await.unwrap(), 2);
    let error = late.await.unwrap_err();
    assert!(error.message().contains("kept others waiting"));
    assert!(!error.may_have_taken_effect());
    bench.idle().await;
    assert!(bench.begun.try_recv().is_err(), "it was sent");
    set(Duration::from_secs(3600));
    bench.allowed.add_permits(1);
    assert_eq!(bench.batcher.submit(0, 3).await.unwrap(), 6);
}
