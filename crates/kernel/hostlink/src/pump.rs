//! The receiving side of an interface: a thread of its own.

use crate::device::HostLink;
use hostsys::fs::{Bell, Readiness};
use ktime::Clock;
use netstack::frame::{Checksum, Frame, Offload};
use netstack::{Stack, vnet};
use std::sync::{Arc, Weak};

/// Tokens of what the thread waits for.
const END: u64 = 0;
const LINK: u64 = 1;
/// Longest frame: a segment of 64 KiB with its headers.
const LONGEST: usize = vnet::HEADER + 14 + 4 + 65536;

/// Ends the thread when dropped.
pub(crate) struct Pump(Bell);

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl Pump {
    /// Starts the thread of the interface `index`.
    pub(crate) fn start(
        link: Arc<HostLink>,
        stack: &Arc<Stack>,
        clock: Clock,
        index: u32,
    ) -> abi::Result<Pump> {
        let readiness = Readiness::new()?;
        let bell = readiness.bell(END)?;
        readiness.add(&*link.fd, LINK)?;
        let stack = Arc::downgrade(stack);
        std::thread::Builder::new().name(format!("link-{index}")).spawn(move || {
            hostsys::cpu::roam();
            run(&readiness, &link, (&stack, &clock), index);
        })?;
        Ok(Pump(bell))
    }
}

fn run(readiness: &Readiness, link: &HostLink, (stack, clock): (&Weak<Stack>, &Clock), index: u32) {
    let mut buffer = vec![0; LONGEST];
    loop {
        for (token, _) in readiness.wait() {
            if token == END {
                return;
            }
        }
        let Some(stack) = stack.upgrade() else { return };
        link.send_waiting();
        receive(link, (&stack, clock), index, &mut buffer);
    }
}

/// Takes everything that has arrived.
fn receive(link: &HostLink, (stack, clock): (&Arc<Stack>, &Clock), index: u32, buffer: &mut [u8]) {
    loop {
        let length = match rustix::io::read(&*link.fd, &mut *buffer) {
            Ok(length) => length,
            // An interface that goes down says so once.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::NETDOWN) => continue,
            Err(_) => return,
        };
        let Some((header, frame)) = buffer[..length].split_first_chunk::<{ vnet::HEADER }>() else {
            continue;
        };
        if let Some(parts) = vnet::cut_datagrams(header, frame) {
            let offload = Offload { checksum: Checksum::Valid, gso: None };
            for part in parts {
                stack.receive(clock.now(), index, Frame::with(stack.pool().copy(&part), offload));
            }
        } else if let Some(offload) = vnet::decode(header, frame, vnet::ETHERNET) {
            let frame = Frame::with(stack.pool().copy(frame), offload);
            stack.receive(clock.now(), index, frame);
        }
    }
}
