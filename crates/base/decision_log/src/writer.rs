//! Writing a log.

use crate::key::Key;
use crate::line::{End, Entry, Line, Resumed, Signed, Start, hex, signed_text};
use crate::verify::Tail;
use sha2::{Digest, Sha256};
use std::io::{self, Write};

/// Appends lines to a log. Each line is one write.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    number: u64,
    previous: [u8; 32],
}

impl<W: Write> Writer<W> {
    /// Begins a log.
    pub fn start(out: W, start: Start) -> io::Result<Writer<W>> {
        let mut writer = Writer { out, number: 0, previous: [0; 32] };
        let line = Line { start: Some(start), ..writer.line() };
        writer.write(&line, b"")?;
        Ok(writer)
    }

    /// Goes on with a log whose writer has ended without [`Writer::finish`]. `out` is at the end of that log.
    pub fn resume(out: W, tail: &Tail, time_ns: u64) -> io::Result<Writer<W>> {
        let mut writer = Writer { out, number: tail.lines, previous: tail.previous };
        let resumed = Resumed { time_ns, incomplete: tail.incomplete };
        let line = Line { resumed: Some(resumed), ..writer.line() };
        writer.write(&line, if tail.newline_missing { b"\n" } else { b"" })?;
        Ok(writer)
    }

    /// Writes where the writer of that log's last line would, which has handed `out` over.
    pub fn behind(out: W, tail: &Tail) -> Writer<W> {
        Writer { out, number: tail.lines, previous: tail.previous }
    }

    /// Adds a decision; returns its number.
    pub fn append(&mut self, entry: &Entry) -> io::Result<u64> {
        let number = self.number;
        let line = Line { decision: Some(entry), ..Line::new(number, &self.previous) };
        self.write(&line, b"")?;
        Ok(number)
    }

    /// Ends the log, with a signature if there is a key.
    pub fn finish(mut self, time_ns: u64, key: Option<&Key>) -> io::Result<W> {
        let text = signed_text(self.number, time_ns, &self.previous);
        let signature =
            key.map(|key| Signed { key: key.public().id(), ed25519: hex(&key.sign(text.as_bytes())) });
        let line = Line { end: Some(End { time_ns, signature }), ..self.line() };
        self.write(&line, b"")?;
        Ok(self.out)
    }

    fn line(&self) -> Line<Entry> {
        Line::new(self.number, &self.previous)
    }

    fn write<D: serde::Serialize>(&mut self, line: &Line<D>, before: &[u8]) -> io::Result<()> {
        let mut text = before.to_vec();
        serde_json::to_writer(&mut text, line)?;
        if text.len() > crate::LINE_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the line is longer than a log's lines may be",
            ));
        }
        let digest = Sha256::digest(&text[before.len()..]).into();
        text.push(b'\n');
        self.out.write_all(&text)?;
        self.out.flush()?;
        self.number += 1;
        self.previous = digest;
        Ok(())
    }
}
