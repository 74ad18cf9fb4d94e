//! systrap.
