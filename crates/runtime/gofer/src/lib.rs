//! gofer.
