//! The ZooKeeper store of clinch.
