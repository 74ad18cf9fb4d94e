//! Output processing and echo.

use super::{ECHO_LIMIT, Ldisc, is_control, upper};

impl Ldisc {
    /// Processes what a program writes, until the output holds `limit` bytes; returns how much was taken.
    pub fn output(&mut self, data: &[u8], limit: usize) -> usize {
        let mut n = 0;
        for &b in data {
            if self.out.len() >= limit {
                break;
            }
            if self.termios.o(libc::OPOST) {
                self.post(b)
            } else {
                self.out.push_back(b)
            }
            n += 1;
        }
        n
    }

    /// One character through OPOST.
    fn post(&mut self, b: u8) {
        let t = self.termios;
        match b {
            b'\n' => {
                if t.o(libc::ONLRET) {
                    self.column = 0;
                }
                if t.o(libc::ONLCR) {
                    self.column = 0;
                    self.line_column = 0;
                    self.put_out(b'\r');
                } else {
                    self.line_column = self.column;
                }
                self.put_out(b'\n');
            }
            b'\r' => {
                if t.o(libc::ONOCR) && self.column == 0 {
                    return;
                }
                if t.o(libc::OCRNL) {
                    if t.o(libc::ONLRET) {
                        self.column = 0;
                        self.line_column = 0;
                    }
                    return self.put_out(b'\n');
                }
                self.column = 0;
                self.line_column = 0;
                self.put_out(b'\r');
            }
            b'\t' => {
                let spaces = 8 - self.column % 8;
                self.column += spaces;
                if t.oflag & libc::TABDLY == libc::XTABS {
                    (0..spaces).for_each(|_| self.put_out(b' '));
                } else {
                    self.put_out(b'\t');
                }
            }
            8 => {
                self.column = self.column.saturating_sub(1);
                self.put_out(8);
            }
            _ => {
                let b = if t.o(libc::OLCUC) { upper(b) } else { b };
                if !is_control(b) && !self.continuation(b) {
                    self.column += 1;
                }
                self.put_out(b);
            }
        }
    }

    /// A later byte of a UTF-8 character, where the terminal is told to know about them.
    pub(super) fn continuation(&self, b: u8) -> bool {
        self.termios.i(libc::IUTF8) && b & 0xc0 == 0x80
    }

    pub(super) fn put_out(&mut self, b: u8) {
        self.out.push_back(b);
    }

    /// Echoes as it is, through output processing.
    pub(super) fn echo_raw(&mut self, b: u8) {
        if self.out.len() >= ECHO_LIMIT {
            return;
        }
        if self.termios.o(libc::OPOST) { self.post(b) } else { self.put_out(b) }
    }

    /// Echoes; control characters as `^X` with ECHOCTL.
    pub(super) fn echo(&mut self, b: u8) {
        if self.out.len() >= ECHO_LIMIT {
            return;
        }
        if self.termios.l(libc::ECHOCTL) && is_control(b) && b != b'\t' {
            self.put_out(b'^');
            self.put_out(b ^ 0x40);
            self.column += 2;
        } else if b == 0xff {
            // Not through output processing, as on Linux.
            self.put_out(b);
            self.column += 1;
        } else {
            self.echo_raw(b);
        }
    }

    /// Remembers where the line began, at its first character.
    pub(super) fn mark_line_column(&mut self) {
        if self.line.is_empty() {
            self.line_column = self.column;
        }
    }
}
