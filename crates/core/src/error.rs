//! One error type for the whole toolkit.
//!
//! A caller needs three facts: the kind of failure, where it happened, and whether the operation may
//! have taken effect. [`Error`] carries these.

use std::fmt;
use std::sync::Arc;

/// The result of every fallible call in clinch.
///
/// ```
/// fn name_of(order: u64) -> clinch::Result<clinch::Name> {
///     clinch::Name::new(format!("orders/{order}"))
/// }
/// assert_eq!(name_of(42).unwrap().as_str(), "orders/42");
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of failure: what a program can act upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The arguments are wrong; nothing was sent. Correct them.
    Invalid,
    /// The store cannot do this; nothing was sent. The message names stores that can.
    Unsupported,
    /// The name is in use with another limit (a mutex here, a semaphore of 5 there).
    Mismatch,
    /// The store did not answer, or answered that it is unavailable. Trying again may help.
    Unreachable,
    /// The store refused access: permissions, credentials.
    Denied,
    /// The store's data is not in clinch's format. It was left untouched.
    Corrupt,
    /// A hold that the operation depends on has been lost.
    Lost,
    /// The owner would wait for itself (it holds the read lock and requests the write lock).
    WouldDeadlock,
    /// The client was closed.
    Closed,
    /// A bug in clinch. Please report it.
    Internal,
}

impl ErrorKind {
    /// The kind in lower case, as the command's `--json` prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::Mismatch => "mismatch",
            Self::Unreachable => "unreachable",
            Self::Denied => "denied",
            Self::Corrupt => "corrupt",
            Self::Lost => "lost",
            Self::WouldDeadlock => "would-deadlock",
            Self::Closed => "closed",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a failed operation may have taken effect at the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effect {
    /// Nothing was changed.
    #[default]
    None,
    /// The request may have reached the store: the outcome is unknown.
    Possible,
}

/// What failed, on which store, for which name, and whether it may have taken effect.
///
/// `Display` is one line that ends with advice, if there is any; `Debug` shows every part.
///
/// ```
/// use clinch::{Error, ErrorKind};
/// let e = Error::new(ErrorKind::Denied, "the file belongs to another user")
///     .with_store("sqlite")
///     .with_advice("run as that user, or give another path with --store");
/// assert_eq!(
///     e.to_string(),
///     "sqlite: the file belongs to another user; run as that user, or give another path with --store"
/// );
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    effect: Effect,
    store: Option<String>,
    name: Option<String>,
    message: String,
    advice: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind`, without effect at the store.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            effect: Effect::None,
            store: None,
            name: None,
            message: message.into(),
            advice: None,
            source: None,
        }))
    }

    /// Shorthand for [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Sets the store.
    #[must_use]
    pub fn with_store(mut self, store: impl Into<String>) -> Self {
        self.0.store = Some(store.into());
        self
    }

    /// Sets the store, unless one is set.
    #[must_use]
    pub fn or_store(self, store: impl Into<String>) -> Self {
        match self.store() {
            Some(_) => self,
            None => self.with_store(store),
        }
    }

    /// Sets the lock's name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// Sets whether the operation may have taken effect.
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.0.effect = effect;
        self
    }

    /// Sets what the user should do.
    #[must_use]
    pub fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.0.advice = Some(advice.into());
        self
    }

    /// Sets the underlying error, such as the driver's.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The store's scheme, if one was involved.
    pub fn store(&self) -> Option<&str> {
        self.0.store.as_deref()
    }

    /// The lock's name, if one was involved.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// What happened, without the store and the advice.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do about it, if that is known.
    pub fn advice(&self) -> Option<&str> {
        self.0.advice.as_deref()
    }

    /// Whether the operation may have taken effect at the store although it is reported as failed.
    pub fn may_have_taken_effect(&self) -> bool {
        self.0.effect == Effect::Possible
    }

    /// Why the lock was lost, if this error reports a loss; see [`Guard::run`](crate::Guard::run).
    pub fn lost_reason(&self) -> Option<crate::LostReason> {
        self.0.source.as_ref()?.downcast_ref().copied()
    }

    /// Whether the same call can succeed later.
    ///
    /// ```
    /// use clinch::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Unreachable, "no reply").is_temporary());
    /// assert!(!Error::new(ErrorKind::Denied, "read only").is_temporary());
    /// ```
    pub fn is_temporary(&self) -> bool {
        self.0.kind == ErrorKind::Unreachable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &self.0;
        if let Some(store) = &e.store {
            write!(f, "{store}: ")?;
        }
        f.write_str(&e.message)?;
        if let Some(name) = &e.name {
            write!(f, " (lock {name:?})")?;
        }
        if e.effect == Effect::Possible {
            f.write_str("; it may have taken effect")?;
        }
        if let Some(advice) = &e.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &self.0;
        f.debug_struct("Error")
            .field("kind", &e.kind)
            .field("effect", &e.effect)
            .field("store", &e.store)
            .field("name", &e.name)
            .field("message", &e.message)
            .field("advice", &e.advice)
            .field("source", &e.source)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|s| s as _)
    }
}

/// An error of kind [`Lost`](ErrorKind::Lost).
///
/// ```
/// use clinch::{Error, ErrorKind, LostReason};
/// let error = Error::from(LostReason::Evicted);
/// assert_eq!(error.kind(), ErrorKind::Lost);
/// assert!(error.to_string().contains("an operator evicted it"));
/// ```
impl From<crate::LostReason> for Error {
    fn from(reason: crate::LostReason) -> Self {
        Self::new(ErrorKind::Lost, format!("the lock was lost: {reason}")).with_source(reason)
    }
}
