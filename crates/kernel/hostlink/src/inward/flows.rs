//! Datagrams: for each pair of a process's port and a destination a socket inside, as long as there is traffic.

use super::packet::{datagram, refusal};
use super::{Ends, Wake, is_over};
use abi::Errno;
use ktime::Ktime;
use netstack::datagram::{DatagramSocket, Protocol, SendControl};
use netstack::{Stack, vnet};
use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Pairs at one time. With one more, the pair that has been silent for the longest time goes.
const MOST: usize = 256;
/// How long a pair is kept without traffic.
const IDLE: Duration = Duration::from_secs(60);
/// Longest datagram.
const LONGEST: usize = 65535;

struct Flow {
    inside: Arc<DatagramSocket>,
    wake: Arc<Wake>,
    ends: Ktime,
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.inside.close();
    }
}

/// All pairs.
pub(super) struct Flows {
    bell: Arc<OwnedFd>,
    all: HashMap<Ends, Flow>,
}

impl Flows {
    pub(super) fn new(bell: Arc<OwnedFd>) -> Flows {
        Flows { bell, all: HashMap::new() }
    }

    /// When the next pair ends.
    pub(super) fn deadline(&self) -> Option<Ktime> {
        self.all.values().map(|flow| flow.ends).min()
    }

    /// Sends a datagram of the host on.
    pub(super) fn take(&mut self, now: Ktime, inside: &Arc<Stack>, ends: Ends, payload: &[u8]) {
        if !self.all.contains_key(&ends) {
            let Ok(flow) = self.open(now, inside, ends) else { return };
            if self.all.len() >= MOST
                && let Some(oldest) = self.all.iter().min_by_key(|(_, flow)| flow.ends).map(|(ends, _)| *ends)
            {
                self.all.remove(&oldest);
            }
            self.all.insert(ends, flow);
        }
        if let Some(flow) = self.all.get_mut(&ends) {
            flow.ends = now.plus(IDLE);
            let send = || flow.inside.send(now, payload, None, &SendControl::default());
            // The first error may be of an earlier one.
            if let Err(error) = send().or_else(|_| send()) {
                log::debug!("a datagram to {}: {error:?}", ends.1);
            }
        }
    }

    fn open(&self, now: Ktime, inside: &Arc<Stack>, (_, to): Ends) -> abi::Result<Flow> {
        let wake = Wake::new(&self.bell);
        let socket = inside.datagram_socket(to.is_ipv6(), Protocol::Udp, wake.clone());
        let flow = Flow { inside: socket, wake, ends: now.plus(IDLE) };
        flow.inside.connect(now, to)?;
        Ok(flow)
    }

    /// Passes answers back, and ends what is over.
    pub(super) fn progress(&mut self, now: Ktime, tun: &OwnedFd) {
        if self.all.is_empty() {
            return;
        }
        let mut buffer = Vec::new();
        self.all.retain(|(from, to), flow| {
            if flow.wake.take() {
                buffer.resize(LONGEST, 0);
                loop {
                    let packet = match flow.inside.receive(&mut buffer, false) {
                        Ok(received) => {
                            flow.ends = now.plus(IDLE);
                            datagram(*to, *from, &buffer[..received.copied])
                        }
                        Err(Errno::ECONNREFUSED) => refusal(*from, *to),
                        Err(_) => break,
                    };
                    let parts = [
                        IoSlice::new(&[0; vnet::HEADER]),
                        IoSlice::new(packet.as_deref().unwrap_or_default()),
                    ];
                    if packet.is_some() {
                        let _ = rustix::io::retry_on_intr(|| rustix::io::writev(tun, &parts));
                    }
                }
            }
            !is_over(flow.ends, now)
        });
    }
}
