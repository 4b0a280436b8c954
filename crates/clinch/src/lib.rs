//! Distributed locks with fencing tokens, on the engines that you already run.
//!
//! ```
//! # async fn demo() -> clinch::Result<()> {
//! let clinch = clinch::connect("memory:").await?;
//! let guard = clinch.lock("orders/42").acquire().await?;
//! println!("held with token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! # clinch::blocking::block_on(demo()).unwrap();
//! ```

mod connect;

pub use clinch_core::*;
pub use connect::{Connect, connect, stores};

/// The same locks for synchronous code.
///
/// ```
/// # fn main() -> clinch::Result<()> {
/// let clinch = clinch::blocking::connect("memory:")?;
/// let guard = clinch.lock("orders/42").acquire()?;
/// drop(guard); // has been released when this returns
/// assert!(clinch.inspect("orders/42")?.is_none());
/// # Ok(()) }
/// ```
pub mod blocking {
    pub use clinch_core::blocking::*;

    /// Connects to a store and waits for it; see [`connect`](crate::connect).
    ///
    /// ```
    /// # fn main() -> clinch::Result<()> {
    /// let clinch = clinch::blocking::connect("memory:")?;
    /// let guard = clinch.lock("orders/42").acquire()?;
    /// # Ok(()) }
    /// ```
    pub fn connect(url: impl AsRef<str>) -> crate::Result<Clinch> {
        block_on(crate::connect(url)).map(Clinch::from)
    }
}

/// What is particular to the embedded store: which file a URL means.
///
/// ```
/// # fn main() -> clinch::Result<()> {
/// let file = clinch::sqlite::file_of(&"sqlite:locks.db".parse()?)?;
/// assert!(file.is_absolute()); // jobs with other working directories use other files
/// # Ok(()) }
/// ```
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use clinch_sqlite::{default_path, file_of};
}

/// What is particular to MySQL and MariaDB: the tables, and the locks that live in your own tables.
///
/// ```
/// assert!(clinch::mysql::schema().contains("CREATE TABLE IF NOT EXISTS clinch_names"));
/// ```
#[cfg(feature = "mysql")]
pub mod mysql {
    pub use clinch_mysql::{patterns, schema};
}

/// What is particular to Redis: the check of tokens at data that live there.
///
/// ```
/// let script = clinch::redis::fence::guarded("return redis.call('SET', KEYS[1], ARGV[1])");
/// assert!(script.contains("FENCED"));
/// ```
#[cfg(feature = "redis")]
pub mod redis {
    pub use clinch_redis::fence;
}

/// What is particular to etcd: the check of tokens at data that live there.
///
/// ```
/// let token = clinch::Token::new(7, 0).unwrap();
/// assert_eq!(clinch::etcd::fence::text(token).len(), 19);
/// ```
#[cfg(feature = "etcd")]
pub mod etcd {
    pub use clinch_etcd::fence;
}
