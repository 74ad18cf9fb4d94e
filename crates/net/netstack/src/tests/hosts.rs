//! Hosts that are joined by a simulated Ethernet.

use crate::addr::Prefix;
use crate::driver::{Device, Features};
use crate::frame::Frame;
use crate::iface::{Address, Config, Iface, Kind, LOOPBACK};
use crate::wire::eth::Mac;
use crate::{NoAlarm, Stack};
use ktime::Ktime;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// A device that keeps what is sent.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) sent: Mutex<VecDeque<Frame>>,
    features: Features,
}

impl Device for Wire {
    fn features(&self) -> Features {
        self.features
    }

    fn transmit(&self, frame: Frame) {
        self.sent.lock().push_back(frame);
    }
}

/// A stack with one Ethernet interface.
pub(crate) struct Host {
    pub(crate) stack: Arc<Stack>,
    pub(crate) wire: Arc<Wire>,
    pub(crate) eth: Arc<Iface>,
}

pub(crate) const T0: Ktime = Ktime::from_millis(1_000_000);

/// Host number `n`: 10.0.0.n/24, fe80::n/64, 2001:db8::n/64.
pub(crate) fn host(n: u8) -> Host {
    let stack = Stack::new([n; 16], Arc::new(NoAlarm));
    stack.set_up(LOOPBACK, true).unwrap();
    let wire = Arc::new(Wire::default());
    let mac = Mac([2, 0, 0, 0, 0, n]);
    let config = Config { name: "eth0".into(), kind: Kind::Ethernet, mac, mtu: 1500 };
    let eth = stack.add_link(config, wire.clone()).unwrap();
    stack.set_up(eth.index, true).unwrap();
    for (ip, len) in
        [(format!("10.0.0.{n}"), 24), (format!("fe80::{n:x}"), 64), (format!("2001:db8::{n:x}"), 64)]
    {
        let prefix = Prefix::new(ip.parse().unwrap(), len);
        stack.add_address(eth.index, Address::new(prefix)).unwrap();
    }
    Host { stack, wire, eth }
}

impl Host {
    /// Takes what was sent.
    pub(crate) fn sent(&self) -> Vec<Frame> {
        self.wire.sent.lock().drain(..).collect()
    }

    pub(crate) fn receive(&self, now: Ktime, frame: &Frame) {
        self.stack.receive(now, self.eth.index, frame.clone());
    }
}

/// Carries frames between two hosts until both are quiet.
pub(crate) fn exchange(now: Ktime, a: &Host, b: &Host) -> usize {
    let mut carried = 0;
    loop {
        let (from_a, from_b) = (a.sent(), b.sent());
        if from_a.is_empty() && from_b.is_empty() {
            return carried;
        }
        carried += from_a.len() + from_b.len();
        assert!(carried < 1_000_000, "the hosts never become quiet");
        from_a.iter().for_each(|frame| b.receive(now, frame));
        from_b.iter().for_each(|frame| a.receive(now, frame));
    }
}
