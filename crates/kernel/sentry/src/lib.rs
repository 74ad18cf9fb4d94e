//! sentry.

#![forbid(unsafe_code)]

pub mod spec;
