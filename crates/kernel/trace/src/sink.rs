//! Sinks: where the messages of a session go.

use crate::queue::{Batch, Queue};
use abi::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use trace_wire::packet::{self, HEADER};
use trace_wire::session::{Retry, SinkStatus};

/// How long the thread of a sink rests after it has sent what there was, unless many packets come. Guest threads need not
/// wake it meanwhile, which costs them several times what a packet does.
const REST: Duration = Duration::from_millis(5);

/// How long the end of a session waits for packets that are on their way.
const FLUSH: Duration = Duration::from_secs(2);

/// How long one look for another connection takes.
const LOOK: Duration = Duration::from_millis(200);

/// Brings another connection to a consumer that has hung up. A process outside makes it: the kernel can open no socket.
pub trait Reconnect: Send {
    /// Waits for a connection. `None` when there is none in this time.
    fn next(&mut self, time: Duration) -> Option<OwnedFd>;
}

/// A socket that packets go to.
pub struct Socket {
    /// What lists call it.
    pub kind: String,
    /// The connection, which does not block. `None` until there is one.
    pub fd: Option<OwnedFd>,
    /// Brings others.
    pub reconnect: Option<Box<dyn Reconnect>>,
    /// When the consumer does not keep up.
    pub retry: Retry,
    /// The consumer is told of packets dropped at the end: by one with a header and no message.
    pub last_count: bool,
}

/// What a sink counts.
#[derive(Default)]
struct Counters {
    sent: AtomicU64,
    dropped: AtomicU64,
    /// As `dropped`, of the width of a packet's header.
    dropped_here: AtomicU32,
    connected: AtomicBool,
}

impl Counters {
    fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        self.dropped_here.fetch_add(1, Ordering::Relaxed);
    }
}

/// A sink.
pub struct Sink {
    kind: String,
    counters: Arc<Counters>,
    /// `None`: packets go nowhere.
    queue: Option<Arc<Queue>>,
}

impl Sink {
    /// A sink that counts packets and sends them nowhere.
    pub fn null() -> Sink {
        let counters = Arc::new(Counters::default());
        counters.connected.store(true, Ordering::Relaxed);
        Sink { kind: "null".into(), counters, queue: None }
    }

    /// A sink that sends to a socket. An error when the host has no thread for it.
    pub fn socket(socket: Socket) -> std::io::Result<Sink> {
        let (counters, queue) = (Arc::new(Counters::default()), Arc::new(Queue::default()));
        counters.connected.store(socket.fd.is_some(), Ordering::Relaxed);
        let kind = socket.kind.clone();
        let sender = Sender { socket, counters: counters.clone(), queue: queue.clone(), told: 0 };
        let run = move || sender.run();
        std::thread::Builder::new().name("trace sink".into()).stack_size(128 << 10).spawn(run)?;
        Ok(Sink { kind, counters, queue: Some(queue) })
    }

    /// Sends a packet some time soon, or drops it.
    pub fn send(&self, packet: &[u8]) {
        let queued = match &self.queue {
            Some(queue) => packet.len() <= packet::MAX_PACKET && queue.push(packet),
            None => {
                self.counters.sent.fetch_add(1, Ordering::Relaxed);
                true
            }
        };
        if !queued {
            self.counters.drop_one();
        }
    }

    /// What it has sent and dropped.
    pub fn status(&self) -> SinkStatus {
        SinkStatus {
            kind: self.kind.clone(),
            sent: self.counters.sent.load(Ordering::Relaxed),
            dropped: self.counters.dropped.load(Ordering::Relaxed),
            connected: self.counters.connected.load(Ordering::Relaxed),
            policy: None,
        }
    }

    /// Takes no more packets, and waits until those on their way are sent, but not for ever.
    pub fn finish(&self) {
        self.close();
        self.wait_until_sent();
    }

    /// Takes no more packets; those on their way are still sent.
    pub(crate) fn close(&self) {
        if let Some(queue) = &self.queue {
            queue.close();
        }
    }

    /// Waits until those are sent, after [`Sink::close`], but not for ever.
    pub(crate) fn wait_until_sent(&self) {
        if let Some(queue) = &self.queue {
            queue.wait_until_over(Instant::now() + FLUSH);
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread of a sink.
struct Sender {
    socket: Socket,
    counters: Arc<Counters>,
    queue: Arc<Queue>,
    /// The count of dropped packets that the consumer knows.
    told: u32,
}

impl Sender {
    fn run(mut self) {
        let queue = self.queue.clone();
        let mut batch = Batch::default();
        while queue.take(&mut batch) {
            batch.drain(|packet| self.send(packet));
            queue.pause(REST);
        }
        if self.socket.last_count && self.told != self.dropped() {
            let mut packet = [0; HEADER];
            packet[0] = HEADER as u8;
            self.send(&mut packet);
        }
        queue.leave();
    }

    fn dropped(&self) -> u32 {
        self.counters.dropped_here.load(Ordering::Relaxed)
    }

    fn send(&mut self, packet: &mut [u8]) {
        let mut retries = 0;
        let mut wait = self.socket.retry.backoff;
        loop {
            let Some(fd) = &self.socket.fd else {
                if self.connect() {
                    continue;
                }
                return self.counters.drop_one();
            };
            let dropped = self.dropped();
            packet::set_dropped(packet, dropped);
            match hostsys::net::send(fd, packet, 0) {
                Ok(_) => {
                    self.told = dropped;
                    self.counters.sent.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(Errno::EAGAIN) if retries < self.socket.retry.retries => {
                    retries += 1;
                    std::thread::sleep(wait);
                    wait = (wait * 2).min(self.socket.retry.backoff_max);
                }
                // The packet is longer than the consumer takes, or its socket stays full.
                Err(Errno::EAGAIN | Errno::EMSGSIZE | Errno::ENOBUFS | Errno::ENOMEM) => {
                    return self.counters.drop_one();
                }
                Err(error) => {
                    log::warn!("a consumer of trace points has hung up: {error}");
                    self.socket.fd = None;
                    self.counters.connected.store(false, Ordering::Relaxed);
                }
            }
        }
    }

    /// Waits for another connection; false when there will be none, or the session is over.
    fn connect(&mut self) -> bool {
        let Some(reconnect) = &mut self.socket.reconnect else { return false };
        loop {
            if let Some(fd) = reconnect.next(LOOK) {
                self.socket.fd = Some(fd);
                self.counters.connected.store(true, Ordering::Relaxed);
                return true;
            }
            if self.queue.is_closed() {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    fn retry(retries: u32) -> Retry {
        Retry { retries, backoff: Duration::from_micros(25), backoff_max: Duration::from_millis(1) }
    }

    fn socket(fd: Option<OwnedFd>) -> Socket {
        Socket { kind: "remote".into(), fd, reconnect: None, retry: retry(0), last_count: false }
    }

    fn received(fd: &OwnedFd) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut buffer = [0; 64];
        while let Ok((n, _)) = recv(fd, &mut buffer, RecvFlags::empty()) {
            if n == 0 {
                break;
            }
            all.push(buffer[..n].to_vec());
        }
        all
    }

    fn end(sink: &Sink) -> (u64, u64, bool) {
        sink.close();
        sink.wait_until_sent();
        let status = sink.status();
        (status.sent, status.dropped, status.connected)
    }

    #[test]
    fn packets_arrive_before_the_end() {
        let (ours, theirs) = pair();
        let sink = Sink::socket(socket(Some(ours))).unwrap();
        for i in 0..10 {
            sink.send(&[8, 0, 9, 0, 0, 0, 0, 0, i]);
        }
        assert_eq!(end(&sink), (10, 0, true));
        let all = received(&theirs);
        assert!(all.iter().enumerate().all(|(i, packet)| packet[8] == i as u8) && all.len() == 10);
    }

    #[test]
    fn a_consumer_that_sleeps_costs_packets_and_says_how_many() {
        let (ours, theirs) = pair();
        let sink = Sink::socket(socket(Some(ours))).unwrap();
        let many = 5000;
        for _ in 0..many {
            sink.send(&[0; 60]);
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while sink.status().sent + sink.status().dropped < many && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = received(&theirs).len() as u64;
        sink.send(&[0; 60]);
        let (sent, dropped, _) = end(&sink);
        assert!(dropped > 0 && sent == before + 1 && sent + dropped == many + 1);
        let last = received(&theirs).pop().unwrap();
        assert_eq!(u64::from(u32::from_le_bytes([last[4], last[5], last[6], last[7]])), dropped);
    }

    #[test]
    fn the_last_packets_that_are_dropped_are_told_of() {
        let (ours, theirs) = pair();
        let sink = Sink::socket(Socket { last_count: true, ..socket(Some(ours)) }).unwrap();
        sink.send(&[0; 9]);
        sink.send(&vec![0; packet::MAX_PACKET + 1]);
        end(&sink);
        let all = received(&theirs);
        let last = all.last().unwrap();
        assert_eq!((all[0].len(), last[4]), (9, 1));
        assert_eq!(last.len(), if all.len() == 1 { 9 } else { HEADER });
    }

    #[test]
    fn a_consumer_that_is_gone_costs_packets() {
        let (ours, theirs) = pair();
        drop(theirs);
        let sink = Sink::socket(socket(Some(ours))).unwrap();
        sink.send(&[0; 9]);
        sink.send(&[0; 9]);
        assert_eq!(end(&sink), (0, 2, false));
    }

    /// Brings one connection.
    struct Once(Option<OwnedFd>);

    impl Reconnect for Once {
        fn next(&mut self, _time: Duration) -> Option<OwnedFd> {
            self.0.take()
        }
    }

    #[test]
    fn a_consumer_that_comes_back_misses_nothing() {
        let ((first, gone), (second, theirs)) = (pair(), pair());
        drop(gone);
        let reconnect: Option<Box<dyn Reconnect>> = Some(Box::new(Once(Some(second))));
        let sink = Sink::socket(Socket { reconnect, ..socket(Some(first)) }).unwrap();
        sink.send(&[0; 9]);
        sink.send(&[0; 10]);
        assert_eq!(end(&sink), (2, 0, true));
        assert_eq!(received(&theirs).len(), 2);
    }
}
