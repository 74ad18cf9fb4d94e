//! The receiving side of an interface: a thread of its own.

use crate::device::HostLink;
use hostsys::fs::{Bell, Readiness};
use ktime::Clock;
use netstack::buf::Buf;
use netstack::frame::{Checksum, Frame, Offload, Part, Tags};
use netstack::{Stack, vnet};
use std::io::IoSliceMut;
use std::sync::{Arc, Weak};

/// Tokens of what the thread waits for.
const END: u64 = 0;
const LINK: u64 = 1;
/// Frames wait that another thread has left.
pub(crate) const REST: u64 = 2;
/// Longest frame: a segment of 64 KiB with its headers.
const LONGEST: usize = 14 + 4 + 65536;

/// Ends the thread when dropped.
pub(crate) struct Pump(Bell);

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl Pump {
    /// Starts the thread of the interface `index`, which waits for `readiness`.
    pub(crate) fn start(
        readiness: Readiness,
        link: Arc<HostLink>,
        (stack, clock): (&Arc<Stack>, Clock),
        index: u32,
    ) -> abi::Result<Pump> {
        let bell = readiness.bell(END)?;
        readiness.add_input(&*link.fd, LINK)?;
        let stack = Arc::downgrade(stack);
        std::thread::Builder::new().name(format!("link-{index}")).spawn(move || {
            hostsys::cpu::roam();
            run(&readiness, &link, (&stack, &clock), index);
        })?;
        Ok(Pump(bell))
    }
}

fn run(readiness: &Readiness, link: &HostLink, (stack, clock): (&Weak<Stack>, &Clock), index: u32) {
    let (mut spare, mut waits) = (None, false);
    loop {
        for (token, _) in readiness.wait() {
            if token == END {
                return;
            }
        }
        let Some(stack) = stack.upgrade() else { return };
        let full = link.resume();
        // Once room is watched for, each frame that leaves is an event.
        if full != waits && readiness.await_room(&*link.fd, LINK, full).is_ok() {
            waits = full;
        }
        receive(link, (&stack, clock), index, &mut spare);
    }
}

/// Takes everything that has arrived. A frame is read into a buffer of the stack's pool. A large one stays there, all others are
/// copied to buffers of their size. `spare` is the buffer for the next frame.
fn receive(link: &HostLink, (stack, clock): (&Arc<Stack>, &Clock), index: u32, spare: &mut Option<Buf>) {
    let pool = stack.pool();
    loop {
        let mut buf = spare.take().unwrap_or_else(|| pool.get(LONGEST));
        let mut header = [0; vnet::HEADER];
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(buf.tail())];
        let length = match rustix::io::readv(&*link.fd, &mut parts) {
            Ok(length) => length.saturating_sub(vnet::HEADER),
            // An interface that goes down says so once.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::NETDOWN) => 0,
            Err(_) => {
                *spare = Some(buf);
                return;
            }
        };
        if length == 0 {
            *spare = Some(buf);
            continue;
        }
        buf.grow(length);
        let take = |buf, offload| stack.receive(clock.now(), index, Frame::with(buf, offload));
        if let Some(parts) = vnet::cut_datagrams(&header, &buf, link.header) {
            let offload = Offload { checksum: Checksum::Valid, gso: None };
            for (n, part) in parts.iter().enumerate() {
                let tags = Tags { part: Part::of(n), ..Tags::default() };
                let frame = Frame { tags, ..Frame::with(pool.copy(part), offload) };
                stack.receive(clock.now(), index, frame);
            }
        } else if let Some(offload) = vnet::decode(&header, &buf, link.header) {
            if 2 * length > buf.truesize() {
                take(buf, offload);
                continue;
            }
            take(pool.copy(&buf), offload);
        }
        buf.truncate(0);
        *spare = Some(buf);
    }
}
