//! TCP.

pub mod seq;
