//! bundle.
