//! task.
