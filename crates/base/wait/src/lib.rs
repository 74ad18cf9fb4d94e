//! wait.
