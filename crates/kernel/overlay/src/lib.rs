//! overlay.
