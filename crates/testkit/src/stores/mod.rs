//! Stores around stores: to make any of them misbehave, or able to do less.

mod faulty;
mod without;

pub use faulty::Faulty;
pub use without::Without;
pub(crate) use without::less;
