//! What getsockopt(2), ioctl(2) and sock_diag(7) report of a TCP socket.

use super::cc::Algorithm;
use super::conn::State;
use super::info::Info;
use super::socket::TcpSocket;
use ktime::Ktime;

impl TcpSocket {
    /// `TCP_INFO`.
    pub fn info(&self, now: Ktime) -> Info {
        let inner = self.inner.lock();
        let mtu = inner.path.as_ref().map_or(0, |path| path.mtu);
        let mut info = inner.conn.info(&self.rx.queue.lock(), now, mtu);
        // A program that still has the descriptor sees a closed socket.
        if inner.conn.state == State::TimeWait {
            info.state = State::Closed as u8;
        }
        if let Some(listener) = &inner.listener {
            let (waiting, backlog) = listener.lengths();
            (info.unacked, info.sacked) = (waiting as u32, backlog as u32);
        }
        info
    }

    /// `TCP_CC_INFO`: empty for algorithms other than BBR.
    pub fn congestion_info(&self, now: Ktime) -> Vec<u8> {
        let inner = self.inner.lock();
        if inner.conn.cc.algorithm != Algorithm::Bbr {
            return Vec::new();
        }
        inner.conn.cc.bbr.info(now).iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Bytes to read (`SIOCINQ`), written and not acknowledged (`SIOCOUTQ`), written and not sent (`SIOCOUTQNSD`).
    pub fn queued(&self) -> (usize, usize, usize) {
        let inner = self.inner.lock();
        let unsent = inner.conn.unsent() as usize;
        (self.rx.queue.lock().available(), inner.conn.tx.len(), unsent)
    }

    /// Bytes that are received and not read, the end of the stream included (`TCP_INQ`).
    pub fn waiting(&self) -> usize {
        let queue = self.rx.queue.lock();
        queue.len() + usize::from(queue.fin)
    }
}
