//! Terminal attributes. See termios(3), ioctl_tty(2).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of control characters in the kernel's structures.
pub const NCCS: usize = 19;

/// `struct termios2`; the first 36 bytes are `struct termios`.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(C)]
pub struct Termios {
    /// Input flags.
    pub iflag: u32,
    /// Output flags.
    pub oflag: u32,
    /// Control flags.
    pub cflag: u32,
    /// Local flags.
    pub lflag: u32,
    /// Line discipline.
    pub line: u8,
    /// Control characters.
    pub cc: [u8; NCCS],
    /// Input speed.
    pub ispeed: u32,
    /// Output speed.
    pub ospeed: u32,
}

/// `struct winsize`.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(C)]
pub struct WinSize {
    /// Rows.
    pub row: u16,
    /// Columns.
    pub col: u16,
    /// Width in pixels.
    pub xpixel: u16,
    /// Height in pixels.
    pub ypixel: u16,
}

impl Default for Termios {
    /// What a new pseudoterminal has.
    fn default() -> Termios {
        Termios {
            iflag: libc::ICRNL | libc::IXON,
            oflag: libc::OPOST | libc::ONLCR,
            cflag: libc::B38400 | libc::CS8 | libc::CREAD,
            lflag: libc::ISIG
                | libc::ICANON
                | libc::ECHO
                | libc::ECHOE
                | libc::ECHOK
                | libc::ECHOCTL
                | libc::ECHOKE
                | libc::IEXTEN,
            line: 0,
            cc: [3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0],
            ispeed: 38400,
            ospeed: 38400,
        }
    }
}

impl Termios {
    /// Any of the local flags.
    pub fn l(&self, f: u32) -> bool {
        self.lflag & f != 0
    }
    /// The line discipline keeps a line until it is complete: canonical mode, but not where another program
    /// has processed the input.
    pub fn edits(&self) -> bool {
        self.l(libc::ICANON) && !self.l(libc::EXTPROC)
    }
    /// Any of the input flags.
    pub fn i(&self, f: u32) -> bool {
        self.iflag & f != 0
    }
    /// Any of the output flags.
    pub fn o(&self, f: u32) -> bool {
        self.oflag & f != 0
    }
    /// A control character.
    pub fn c(&self, i: usize) -> u8 {
        self.cc[i]
    }
    /// True when `b` is the control character `i`, which is not disabled.
    pub fn is(&self, b: u8, i: usize) -> bool {
        b != 0 && self.cc[i] == b
    }
    /// The `struct termios` part.
    pub fn short(&self) -> [u8; 36] {
        let mut b = [0; 36];
        b.copy_from_slice(&self.as_bytes()[..36]);
        b
    }
    /// The old `struct termio`: the low halves of the flags and eight control characters.
    pub fn old(&self) -> [u8; 18] {
        let mut b = [0; 18];
        for (i, f) in [self.iflag, self.oflag, self.cflag, self.lflag].into_iter().enumerate() {
            b[2 * i..2 * i + 2].copy_from_slice(&(f as u16).to_ne_bytes());
        }
        b[8] = self.line;
        b[9..17].copy_from_slice(&self.cc[..8]);
        b
    }
    /// With what `struct termio` holds replaced.
    pub fn with_old(mut self, b: &[u8; 18]) -> Termios {
        let half =
            |i: usize, f: u32| f & 0xffff_0000 | u32::from(u16::from_ne_bytes([b[2 * i], b[2 * i + 1]]));
        self.iflag = half(0, self.iflag);
        self.oflag = half(1, self.oflag);
        self.cflag = half(2, self.cflag);
        self.lflag = half(3, self.lflag);
        self.line = b[8];
        self.cc[..8].copy_from_slice(&b[9..17]);
        self
    }
    /// With the `struct termios` part replaced; speeds follow the flags.
    pub fn with_short(mut self, b: &[u8; 36]) -> Termios {
        self.as_mut_bytes()[..36].copy_from_slice(b);
        if let Some(s) = speed(self.cflag) {
            (self.ispeed, self.ospeed) = (s, s);
        }
        self
    }
}

/// The speed that the CBAUD bits stand for; `None` for BOTHER.
fn speed(cflag: u32) -> Option<u32> {
    const LOW: [u32; 16] =
        [0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19200, 38400];
    const HIGH: [u32; 16] = [
        0, 57_600, 115_200, 230_400, 460_800, 500_000, 576_000, 921_600, 1_000_000, 1_152_000, 1_500_000,
        2_000_000, 2_500_000, 3_000_000, 3_500_000, 4_000_000,
    ];
    let i = (cflag & 0o17) as usize;
    match cflag & 0o10000 {
        0 => Some(LOW[i]),
        _ if i == 0 => None,
        _ => Some(HIGH[i]),
    }
}
