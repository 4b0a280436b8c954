//! The MySQL and MariaDB store of clinch.

pub mod forms;
