//! Tables that a program might pass.

use crate::Tables;
use crate::layout::{ERROR, PART, REPLACE, Replace, STANDARD, layout};
use abi::Errno;
use ktime::Ktime;
use netfilter::{Family, Netfilter};
use netstack::datagram::Protocol;
use netstack::notify::Silent;
use netstack::{LOOPBACK, NoAlarm, Stack};
use std::sync::Arc;

const ACCEPT: i32 = -2;
const RETURN: i32 = -5;
/// Bytes of a rule with a standard target, and of one that starts a chain.
const RULE: usize = 112 + STANDARD;
const START: usize = 112 + ERROR;

fn entry(name: &str, size: usize, data: &[u8]) -> Vec<u8> {
    let layout = layout(Family::V4);
    let mut entry = vec![0; layout.entry + size];
    let len = entry.len();
    layout.set_offsets(&mut entry, len);
    let part = &mut entry[layout.entry..];
    part[..2].copy_from_slice(&(size as u16).to_ne_bytes());
    part[2..2 + name.len()].copy_from_slice(name.as_bytes());
    part[PART..PART + data.len()].copy_from_slice(data);
    entry
}

fn rule(verdict: i32) -> Vec<u8> {
    entry("", STANDARD, &verdict.to_ne_bytes())
}

/// A table raw with a point Output that starts with the second entry; PreRouting's policy is the first, Output's the
/// third.
fn table(first: i32, chains: &[Vec<u8>], entries: usize) -> (Replace, Vec<u8>) {
    let mut blob = [rule(ACCEPT), rule(first), rule(ACCEPT)].concat();
    chains.iter().for_each(|chain| blob.extend(chain));
    blob.extend(entry("ERROR", ERROR, b"ERROR"));
    let mut head = vec![0; REPLACE];
    head[..3].copy_from_slice(b"raw");
    let mut put = |at: usize, value: usize| head[at..at + 4].copy_from_slice(&(value as u32).to_ne_bytes());
    put(32, 9);
    put(36, entries + 4);
    put(40, blob.len());
    put(44 + 4 * 3, RULE);
    put(64 + 4 * 3, 2 * RULE);
    put(84, 3);
    (Replace::parse(&head).unwrap(), blob)
}

struct Host {
    stack: Arc<Stack>,
    tables: Tables,
}

fn host() -> Host {
    let stack = Stack::new([1; 16], Arc::new(NoAlarm));
    stack.set_up(LOOPBACK, true).unwrap();
    let tables = Tables::new(&Netfilter::new(&stack, [2; 16]));
    Host { stack, tables }
}

impl Host {
    fn send(&self) -> Result<usize, Errno> {
        let socket = self.stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
        let to = "127.0.0.1:53".parse().unwrap();
        socket.send(Ktime::from_millis(1), b"x", Some(to), &Default::default())
    }
}

/// Each chain calls the next one twice, so a packet would meet 2^40 rules.
#[test]
fn a_packet_meets_a_bounded_number_of_rules() {
    const LEVELS: usize = 40;
    let size = START + 3 * RULE;
    let at = |level: usize| (3 * RULE + level * size + START) as i32;
    let mut chains = Vec::new();
    for level in 0..LEVELS {
        let next = if level + 1 < LEVELS { at(level + 1) } else { RETURN };
        let chain = [entry("ERROR", ERROR, b"chain"), rule(next), rule(next), rule(RETURN)];
        chains.push(chain.concat());
    }
    let host = host();
    let (replace, blob) = table(at(0), &chains, 4 * LEVELS);
    host.tables.replace(Family::V4, replace, blob).unwrap();
    assert_eq!(host.send(), Err(Errno::EPERM));
}

#[test]
fn loops_and_open_ends_are_refused() {
    let at = (3 * RULE + START) as i32;
    let chain = |verdict| [entry("ERROR", ERROR, b"chain"), rule(verdict)].concat();
    let host = host();
    let put = |verdict| {
        let (replace, blob) = table(at, &[chain(verdict)], 2);
        host.tables.replace(Family::V4, replace, blob).map(drop)
    };
    assert_eq!(put(at), Err(Errno::ELOOP));
    assert_eq!(put(RULE as i32), Err(Errno::ELOOP));
    assert_eq!(put(4), Err(Errno::EINVAL));
    for none in [0, -3, -6, -9, i32::MIN] {
        assert_eq!(put(none), Err(Errno::EINVAL));
    }
    assert_eq!(put(-1), Ok(()));
    assert_eq!(host.send(), Err(Errno::EPERM));
}

#[test]
fn every_truncation_and_every_changed_byte_is_survived() {
    let chain = [entry("ERROR", ERROR, b"chain"), rule(RETURN)].concat();
    let (replace, blob) = table((3 * RULE + START) as i32, &[chain], 2);
    for len in 0..blob.len() {
        let cut = Replace { size: len, ..replace.clone() };
        assert!(host().tables.replace(Family::V4, cut, blob[..len].to_vec()).is_err());
    }
    for at in 0..blob.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = blob.clone();
            changed[at] = value;
            let host = host();
            if host.tables.replace(Family::V4, replace.clone(), changed).is_ok() {
                let _ = host.send();
            }
        }
    }
}

#[test]
fn a_table_and_its_counters_come_back() {
    let host1 = host();
    let chain = [entry("ERROR", ERROR, b"chain"), rule(RETURN)].concat();
    let (replace, blob) = table((3 * RULE + START) as i32, &[chain], 2);
    host1.tables.replace(Family::V4, replace, blob).unwrap();
    host1.send().unwrap();
    let saved = host1.tables.saved(Family::V4);
    assert!(saved.len() == 1 && saved[0].counters.iter().any(|[packets, _]| *packets > 0));
    let again = host();
    again.tables.restore(Family::V4, &saved[0]).unwrap();
    assert_eq!(again.tables.saved(Family::V4), saved);
    // What cannot be is refused.
    let refused = |change: &dyn Fn(&mut crate::TableState)| {
        let mut bad = saved[0].clone();
        change(&mut bad);
        assert!(host().tables.restore(Family::V4, &bad).is_err(), "{bad:?}");
    };
    refused(&|t| t.name = "none".into());
    refused(&|t| t.valid_hooks = 1);
    refused(&|t| t.entries += 1);
    refused(&|t| t.blob.truncate(100));
    refused(&|t| t.hook_entry = [7; 5]);
    refused(&|t| t.counters.push([0; 2]));
}
