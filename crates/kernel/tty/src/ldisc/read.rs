//! Reading.

use super::{End, Ldisc};

impl Ldisc {
    /// Characters a read would get at most, as FIONREAD counts them.
    pub fn readable(&self) -> usize {
        self.ready.iter().filter(|c| c.end != End::Eof).count()
    }

    /// True when a read need not wait: a complete line, or `min` characters in raw mode.
    pub fn has_input(&self, min: usize) -> bool {
        if self.termios.edits() { !self.ready.is_empty() } else { self.ready.len() >= min.max(1) }
    }

    /// Takes a line, or what is there in raw mode. An end-of-file character gives 0.
    pub fn read(&mut self, buf: &mut [u8]) -> usize {
        let canonical = self.termios.edits();
        // With EXTPROC an end of file is one where it comes alone.
        let alone =
            self.ready.len() == 1 && self.ready.front().is_some_and(|c| self.termios.is(c.byte, libc::VEOF));
        if alone && self.termios.l(libc::ICANON) && !canonical {
            self.ready.clear();
            return 0;
        }
        let mut n = 0;
        while n < buf.len() {
            let Some(c) = self.ready.pop_front() else { return n };
            if canonical && c.end == End::Eof {
                return n;
            }
            buf[n] = c.byte;
            n += 1;
            if canonical && c.end == End::Line {
                return n;
            }
        }
        // An end of file right behind what filled the buffer goes with it.
        if canonical && self.ready.front().is_some_and(|c| c.end == End::Eof) {
            self.ready.pop_front();
        }
        n
    }
}
