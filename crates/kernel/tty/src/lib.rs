//! tty.
