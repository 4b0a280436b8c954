//! Runs the cases on the stores.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use super::cases::ALL;
use super::{Case, Ctx, Need, Subject};
use crate::holder;

/// A case that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(240);

/// Every case of the suite.
///
/// ```
/// use clinch_testkit::conformance::catalogue;
/// let fifo: Vec<_> = catalogue().filter(|case| case.group == "fifo").collect();
/// assert!(fifo.iter().any(|case| case.name == "grants_in_ticket_order"));
/// ```
pub fn catalogue() -> impl Iterator<Item = &'static Case> {
    ALL.iter().copied().flatten()
}

/// Runs the suite on these stores, one test for each store and case; to be called by `main` of a
/// test binary. It is also the `main` of the processes that cases kill and pause.
///
/// ```no_run
/// use clinch_core::store::Capability;
/// use clinch_testkit::conformance::{self, Lacking, Memory, Subject};
///
/// fn main() -> std::process::ExitCode {
///     let less = Lacking { full: Memory, capability: Capability::Queue };
///     let subjects: Vec<Box<dyn Subject>> = vec![Box::new(Memory), Box::new(less)];
///     conformance::main(subjects)
/// }
/// ```
pub fn main(subjects: Vec<Box<dyn Subject>>) -> ExitCode {
    let subjects: Vec<Arc<dyn Subject>> = subjects.into_iter().map(Arc::from).collect();
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(holder::FLAG) {
        return holder::serve(&subjects, words.collect());
    }
    let mut arguments = Arguments::from_args();
    // Most cases wait for leases, not for the processor.
    arguments.test_threads.get_or_insert(6);
    let trials = subjects.iter().flat_map(trials).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trials(subject: &Arc<dyn Subject>) -> Vec<Trial> {
    // A refusal of what the store has is no case at all; everything else is listed.
    let moot = |case: &Case| {
        let has =
            |need: &Need| matches!(need, Need::Lacks(c) if subject.info().capabilities.has(*c));
        case.needs.iter().any(has)
    };
    let trial = |case: &'static Case| {
        let name = format!("{}::{}::{}", subject.name(), case.group, case.name);
        let subject = subject.clone();
        Trial::ignorable_test(name, move || match case.does_not_apply(&*subject) {
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => run(subject, case).map(|()| Completion::Completed),
        })
    };
    let wanted = |case: &&Case| !moot(case) && subject.wants(case);
    catalogue().filter(wanted).map(trial).collect()
}

fn run(subject: Arc<dyn Subject>, case: &'static Case) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let body = async move {
        let ctx = Ctx::new(subject).await?;
        let failed = |error| format!("{error}\n  (the case: {})", case.about);
        let in_time = tokio::time::timeout(LONGEST, (case.run)(&ctx)).await;
        let outcome = in_time.unwrap_or_else(|_| Err("it hangs".into()));
        outcome.map_err(failed)?;
        ctx.expect_empty().await;
        Ok(())
    };
    let outcome = runtime.block_on(body);
    // A case that failed may have left blocked threads; they must not block the suite.
    runtime.shutdown_background();
    outcome
}
