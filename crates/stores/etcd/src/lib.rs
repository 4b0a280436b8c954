//! The etcd store of clinch.
