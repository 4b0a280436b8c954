//! The MySQL and MariaDB store of clinch.
