//! Writing a stream.

use crate::Record;
use std::io::{self, Write};

/// Writes records.
pub struct Writer<W: Write> {
    to: W,
    frame: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// A stream that goes to `to`, in pieces of one record each.
    pub fn new(to: W) -> Self {
        Self { to, frame: Vec::new() }
    }

    /// Writes one record.
    pub fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.frame.clear();
        self.frame.extend([0; 4]);
        record.encode(&mut self.frame);
        let len = (self.frame.len() - 4) as u32;
        self.frame[..4].copy_from_slice(&len.to_le_bytes());
        self.to.write_all(&self.frame)
    }

    /// Writes out what is held back.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
