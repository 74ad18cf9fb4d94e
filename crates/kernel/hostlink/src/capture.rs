//! A capture of the sandbox's packets in a file of the host (`--pcap-log`).
//!
//! The runtime opens the file, and this module only writes to it, from its start. The format is libpcap's with times in
//! nanoseconds. The link type is that of tcpdump(8) for "any" interface (LINUX_SLL2), because one file holds packets of
//! all interfaces. Each record is one write, made by the thread that sends or receives the packet. A record that would
//! go beyond the limit ends the capture.
//!
//! Lock rank: a leaf. A checkpoint keeps nothing: the file comes from the host.

use lock_order::Mutex;
use netstack::Stack;
use netstack::capture::{CapturedFrame, Observer};
use netstack::iface::Kind;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Magic of files with times in nanoseconds, and the version of the format.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
/// LINKTYPE_LINUX_SLL2.
const LINK_TYPE: u32 = 276;
/// Lengths: the file's header, a record's, the link header of each packet, Ethernet's, a hardware address.
const FILE_HEADER: u64 = 24;
const RECORD: usize = 16;
const LINK: usize = 20;
const ETHERNET: usize = 14;
const ADDRESS: usize = 6;
const SECOND: i64 = 1_000_000_000;

/// What is written, and how much.
pub struct CaptureFile {
    /// The file, empty and open for writing.
    pub file: OwnedFd,
    /// Bytes that are kept of each packet, link header included.
    pub snaplen: u32,
    /// How long the file may become.
    pub most: u64,
}

/// The writer of a file.
struct Writer {
    to: CaptureFile,
    /// Bytes written; `None` when the file is complete.
    written: Mutex<Option<u64>>,
}

/// Writes the packets of all interfaces of a stack to a file from now on.
pub fn capture(stack: &Arc<Stack>, to: CaptureFile) -> std::io::Result<()> {
    let mut header = MAGIC.to_ne_bytes().to_vec();
    header.extend(VERSION.iter().flat_map(|half| half.to_ne_bytes()));
    header.extend([0; 8]);
    header.extend(to.snaplen.to_ne_bytes());
    header.extend(LINK_TYPE.to_ne_bytes());
    if rustix::io::write(&to.file, &header)? != header.len() {
        return Err(std::io::ErrorKind::StorageFull.into());
    }
    stack.capture(Arc::new(Writer { to, written: Mutex::new(Some(FILE_HEADER)) }));
    Ok(())
}

/// The header of a record: when, how many bytes follow, and how long the packet is.
fn record_header(kept: usize, full: usize) -> [u8; RECORD] {
    let now = hostsys::clock::gettime_ns(libc::CLOCK_REALTIME).unwrap_or(0).max(0);
    let words = [(now / SECOND) as u32, (now % SECOND) as u32, kept as u32, full as u32];
    let mut out = [0; RECORD];
    out.iter_mut().zip(words.iter().flat_map(|word| word.to_ne_bytes())).for_each(|(to, byte)| *to = byte);
    out
}

/// The link header of a packet, in network order: protocol, interface, its type, how the packet came by, the sender's address.
fn link_header(seen: &CapturedFrame<'_>) -> [u8; LINK] {
    let (hardware, length) = match seen.link.kind {
        Kind::Loopback => (libc::ARPHRD_LOOPBACK, ADDRESS),
        Kind::Ethernet => (libc::ARPHRD_ETHER, ADDRESS),
        Kind::Tunnel => (libc::ARPHRD_NONE, 0),
    };
    let mut out = [0; LINK];
    out[..2].copy_from_slice(seen.bytes.get(12..ETHERNET).unwrap_or(&[0; 2]));
    out[4..8].copy_from_slice(&seen.link.index.to_be_bytes());
    out[8..10].copy_from_slice(&hardware.to_be_bytes());
    out[10..12].copy_from_slice(&[seen.kind as u8, length as u8]);
    out[12..12 + length].copy_from_slice(seen.bytes.get(6..6 + length).unwrap_or(&[0; ADDRESS][..length]));
    out
}

impl Observer for Writer {
    fn see(&self, seen: CapturedFrame<'_>) -> bool {
        let link = link_header(&seen);
        let packet = seen.bytes.get(ETHERNET..).unwrap_or_default();
        let full = LINK + packet.len();
        let kept = full.min(self.to.snaplen as usize);
        let (link, packet) = (&link[..kept.min(LINK)], &packet[..kept.saturating_sub(LINK)]);
        let mut written = self.written.lock();
        let Some(before) = *written else { return false };
        let after = before + (RECORD + kept) as u64;
        if after > self.to.most {
            log::warn!("the packet capture has reached {} bytes and ends", self.to.most);
            *written = None;
            return false;
        }
        let record = record_header(kept, full);
        let parts = [IoSlice::new(&record), IoSlice::new(link), IoSlice::new(packet)];
        match rustix::io::retry_on_intr(|| rustix::io::writev(&self.to.file, &parts)) {
            Ok(n) if n == RECORD + kept => *written = Some(after),
            result => {
                // No half of a record stays: readers would stumble over it.
                let _ = rustix::fs::ftruncate(&self.to.file, before);
                log::warn!("the packet capture cannot be written and ends: {result:?}");
                *written = None;
            }
        }
        written.is_some()
    }
}
