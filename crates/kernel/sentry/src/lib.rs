//! sentry.
