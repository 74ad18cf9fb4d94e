//! Streams inside one stack under random operations: whatever way the bytes take, each arrives once and in order.

use super::hosts::{T0, host};
use crate::Stack;
use crate::capture::Watch;
use crate::notify::Silent;
use crate::tcp::{SendFlags, TcpSocket};
use abi::Errno;
use ktime::Ktime;
use std::sync::Arc;
use std::time::Duration;

/// A seeded generator of numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// One direction: bytes sent and received; byte `n` of the stream is a function of `n`.
#[derive(Default)]
struct Stream {
    sent: usize,
    got: usize,
    shut: bool,
}

fn byte(n: usize) -> u8 {
    (n ^ n >> 8 ^ n >> 16) as u8
}

fn pair(stack: &Arc<Stack>) -> [Arc<TcpSocket>; 2] {
    let new = || stack.tcp_socket(false, Arc::new(Silent));
    let (listener, client) = (new(), new());
    listener.bind("127.0.0.1:0".parse().unwrap(), true).unwrap();
    listener.listen(1).unwrap();
    assert_eq!(client.connect(T0, listener.local()), Err(Errno::EINPROGRESS));
    let server = listener.accept(Arc::new(Silent)).unwrap();
    listener.close(T0);
    [client, server]
}

impl Stream {
    fn send(&mut self, from: &TcpSocket, now: Ktime, len: usize, more: bool) {
        if self.shut {
            return;
        }
        let data: Vec<u8> = (self.sent..self.sent + len).map(byte).collect();
        match from.send_as(now, &data, SendFlags { more, ..SendFlags::default() }) {
            Ok(n) => self.sent += n,
            Err(errno) => assert_eq!(errno, Errno::EAGAIN),
        }
    }

    fn receive(&mut self, to: &TcpSocket, now: Ktime, len: usize) {
        let mut data = vec![0; len];
        match to.receive(now, &mut data, false) {
            Ok(n) => {
                let wrong = data[..n].iter().enumerate().position(|(at, got)| *got != byte(self.got + at));
                assert_eq!(wrong, None, "after {} bytes", self.got);
                self.got += n;
            }
            Err(errno) => assert_eq!(errno, Errno::EAGAIN),
        }
        assert!(self.got <= self.sent);
    }
}

fn run(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let a = host(1);
    let ends = pair(&a.stack);
    let mut ways: [Stream; 2] = Default::default();
    let mut now = T0;
    let mut watch: Option<Watch> = None;
    for _ in 0..400 {
        let side = dice.below(2) as usize;
        let (from, to) = (&ends[side], &ends[1 - side]);
        match dice.below(20) {
            0..=5 => {
                let len = 1 << dice.below(19);
                ways[side].send(from, now, len, dice.below(4) == 0);
            }
            6..=12 => ways[side].receive(to, now, 1 << dice.below(18)),
            13 => watch = if watch.is_none() { Some(a.stack.watch()) } else { None },
            14 => {
                let on = dice.below(2) == 0;
                from.configure(now, |options| {
                    options.cork = on;
                    options.flush = !on;
                });
            }
            15 => from.configure(now, |options| {
                options.nodelay = !options.nodelay;
                options.flush = true;
            }),
            16 | 17 => {
                now = now.plus(Duration::from_millis(1 << dice.below(9)));
                a.stack.run_timers(now);
            }
            18 if dice.below(8) == 0 && !ways[side].shut => {
                ways[side].shut = true;
                from.shutdown(now, false, true).unwrap();
            }
            _ => {
                let mut one = [0];
                let _ = to.receive(now, &mut one, true);
            }
        }
    }
    drop(watch);
    for end in &ends {
        end.configure(now, |options| (options.cork, options.flush) = (false, true));
    }
    for _ in 0..10_000 {
        if (0..2).all(|side| ways[side].got == ways[side].sent) {
            return;
        }
        for side in 0..2 {
            ways[side].receive(&ends[1 - side], now, 1 << 20);
        }
        now = now.plus(Duration::from_millis(10));
        a.stack.run_timers(now);
    }
    let left: Vec<_> = ways.iter().map(|way| (way.sent, way.got)).collect();
    panic!("seed {seed}: bytes sent and received: {left:?}");
}

#[test]
fn bytes_arrive_once_whichever_way_they_take() {
    for seed in 1..=200 {
        run(seed);
    }
}
