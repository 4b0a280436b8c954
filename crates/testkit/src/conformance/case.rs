//! A case of the suite.

use std::pin::Pin;

use clinch_core::store::{Capability, StoreInfo};

use super::{Ctx, Subject};

/// What a case comes to; it may also panic.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_testkit::conformance::Outcome;
/// async fn fails() -> Outcome {
///     clinch_core::Clinch::memory().lock("").acquire().await?; // any error will do
///     Ok(())
/// }
/// assert!(fails().await.unwrap_err().to_string().contains("empty"));
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
pub type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// The body of a case.
type Body = for<'a> fn(&'a Ctx) -> Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// One thing that a store must do.
///
/// ```
/// use clinch_testkit::conformance::{Case, Memory, catalogue};
/// let applies = |case: &&Case| case.does_not_apply(&Memory).is_none();
/// assert!(catalogue().filter(applies).count() > 50);
/// assert!(catalogue().all(|case| !case.about.is_empty()));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The file that it is in.
    pub group: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it shows, in one line.
    pub about: &'static str,
    /// What it takes.
    pub needs: &'static [Need],
    /// The case itself.
    pub run: Body,
}

/// What a case takes beyond a bare store.
///
/// ```
/// use clinch_testkit::conformance::{Memory, Need, catalogue};
/// let case = catalogue().find(|case| case.needs.contains(&Need::Processes)).unwrap();
/// let reason = case.does_not_apply(&Memory).unwrap();
/// assert!(reason.contains("outside their process"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The store can do this.
    Has(Capability),
    /// The store cannot do this: the case asserts the refusal.
    Lacks(Capability),
    /// Locks are shared between processes.
    Processes,
    /// The engine sees the death of a process at once.
    SeesDeath,
}

impl Case {
    /// Why this case does not apply to a store; `None` when it does.
    ///
    /// ```
    /// use clinch_core::store::Capability;
    /// use clinch_testkit::conformance::{Lacking, Memory, Need, catalogue};
    /// let simple = Lacking { full: Memory, capability: Capability::Queue };
    /// let needs_queue = Need::Has(Capability::Queue);
    /// let case = catalogue().find(|case| case.needs.contains(&needs_queue)).unwrap();
    /// assert!(case.does_not_apply(&simple).unwrap().contains("no fair queues"));
    /// ```
    pub fn does_not_apply(&self, subject: &dyn Subject) -> Option<String> {
        let StoreInfo { capabilities, .. } = subject.info();
        self.needs.iter().find_map(|need| match need {
            Need::Has(c) if !capabilities.has(*c) => Some(format!(
                "the store has no {c}; the group `refusal` shows that it says so"
            )),
            Need::Lacks(c) if capabilities.has(*c) => Some(format!("the store has {c}")),
            Need::Processes => subject.alone().map(str::to_owned),
            Need::SeesDeath if !subject.sees_death() => {
                Some("the engine learns of a death when the lease ends".into())
            }
            Need::Has(_) | Need::Lacks(_) | Need::SeesDeath => None,
        })
    }
}

/// Makes the table of a file's cases: name, needs, and what it shows.
macro_rules! cases {
    ($group:literal; $($name:ident [$($need:expr),*] $about:literal;)+) => {
        /// The cases of this file.
        pub(in crate::conformance) const CASES: &[$crate::conformance::Case] = &[$(
            $crate::conformance::Case {
                group: $group,
                name: stringify!($name),
                about: $about,
                needs: &[$($need),*],
                run: |ctx| Box::pin($name(ctx)),
            },
        )+];
    };
}
pub(super) use cases;
