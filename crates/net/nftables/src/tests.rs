//! Batches as a program sends them: undoing, refusals and bounds.

use crate::api::msg;
use crate::attr::{Attrs, Writer};
use crate::message::{NFTABLES, flag};
use crate::{AckOptions, Asker, Nftables, Outcome, Request, family};
use abi::Errno;
use ktime::Ktime;
use netfilter::Netfilter;
use netstack::datagram::Protocol;
use netstack::notify::Silent;
use netstack::{LOOPBACK, NoAlarm, Stack};
use std::sync::Arc;

const NOW: u64 = 1_000_000;

struct World {
    stack: Arc<Stack>,
    rules: Nftables,
    now: u64,
}

fn message(kind: u16, flags: u16, family: u8, resource: u16, fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut out = Writer(vec![0; 4]);
    out.0.extend(kind.to_ne_bytes());
    out.0.extend(flags.to_ne_bytes());
    out.0.extend([7, 0, 0, 0, 0, 0, 0, 0, family, 0]);
    out.0.extend(resource.to_be_bytes());
    fill(&mut out);
    let len = out.0.len() as u32;
    out.0[..4].copy_from_slice(&len.to_ne_bytes());
    out.0
}

/// A message of a batch about IPv4 tables.
fn ask(number: u8, flags: u16, fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    message(u16::from(NFTABLES) << 8 | u16::from(number), flags | flag::REQUEST, family::IPV4, 0, fill)
}

fn table(name: &str) -> Vec<u8> {
    ask(msg::NEWTABLE, flag::CREATE, |out| out.text(1, name.as_bytes()))
}

fn chain(name: &str, hook: Option<u32>) -> Vec<u8> {
    ask(msg::NEWCHAIN, flag::CREATE, |out| {
        out.text(1, b"t");
        out.text(3, name.as_bytes());
        if let Some(hook) = hook {
            out.nest(4, |out| {
                out.be32(1, hook);
                out.be32(2, 0);
            });
            out.text(7, b"filter");
        }
    })
}

/// An expression in a list.
fn expr(out: &mut Writer, name: &str, fill: impl FnOnce(&mut Writer)) {
    out.nest(1, |out| {
        out.text(1, name.as_bytes());
        out.nest(2, fill);
    });
}

fn verdict(out: &mut Writer, code: i32, chain: Option<&str>) {
    expr(out, "immediate", |out| {
        out.be32(1, 0);
        out.nest(2, |out| {
            out.nest(2, |out| {
                out.be32(1, code as u32);
                if let Some(chain) = chain {
                    out.text(2, chain.as_bytes());
                }
            });
        });
    });
}

fn rule(chain: &str, fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    ask(msg::NEWRULE, flag::CREATE | flag::APPEND, |out| {
        out.text(1, b"t");
        out.text(2, chain.as_bytes());
        out.nest(4, fill);
    })
}

fn jump(from: &str, to: &str) -> Vec<u8> {
    rule(from, |out| verdict(out, -3, Some(to)))
}

fn set(name: &str, flags: u32, size: u32) -> Vec<u8> {
    ask(msg::NEWSET, flag::CREATE, |out| {
        out.text(1, b"t");
        out.text(2, name.as_bytes());
        out.be32(3, flags);
        out.be32(4, 7);
        out.be32(5, 4);
        out.nest(9, |out| out.be32(1, size));
        out.be32(10, 1);
    })
}

fn elements(set: &str, keys: &[u32], flags: u32) -> Vec<u8> {
    ask(msg::NEWSETELEM, flag::CREATE, |out| {
        out.text(1, b"t");
        out.text(2, set.as_bytes());
        out.nest(3, |out| {
            for key in keys {
                out.nest(1, |out| {
                    out.nest(1, |out| out.be32(1, *key));
                    if flags != 0 {
                        out.be32(3, flags);
                    }
                });
            }
        });
    })
}

fn asker(now: u64) -> Asker<'static> {
    Asker {
        port: 9,
        pid: 1,
        name: b"test",
        options: AckOptions::default(),
        listeners: false,
        now,
        room: 1 << 20,
    }
}

impl World {
    fn new() -> World {
        let stack = Stack::new([1; 16], Arc::new(NoAlarm));
        stack.set_up(LOOPBACK, true).unwrap();
        let rules = Nftables::new(Netfilter::new(&stack, [2; 16]));
        World { stack, rules, now: NOW }
    }

    fn outcome(&self, messages: &[Vec<u8>], ended: bool) -> Outcome {
        let mut bytes = message(16, flag::REQUEST, 0, NFTABLES.into(), |_| {});
        bytes.extend(messages.concat());
        if ended {
            bytes.extend(message(17, flag::REQUEST, 0, NFTABLES.into(), |_| {}));
        }
        self.rules.batch(&bytes, &asker(self.now))
    }

    /// The errors of a batch.
    fn batch(&self, messages: &[Vec<u8>]) -> Vec<i32> {
        let answers = self.outcome(messages, true).answers;
        answers.iter().map(|answer| -i32::from_ne_bytes(answer[16..20].try_into().unwrap())).collect()
    }

    /// How many messages a dump has.
    fn count(&self, number: u8, fill: impl FnOnce(&mut Writer)) -> usize {
        let bytes = ask(number, flag::DUMP, fill);
        let (request, _) = Request::next(&bytes).unwrap();
        let mut count = 0;
        for datagram in self.rules.get(&request, &asker(self.now)).unwrap() {
            let mut rest = &datagram[..];
            while let Some((message, after)) = Request::next(rest) {
                count += usize::from(message.subsystem() == NFTABLES);
                rest = after;
            }
        }
        count
    }

    fn send(&self, port: u16) -> Result<usize, Errno> {
        let socket = self.stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
        let to = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        socket.send(Ktime::from_millis(self.now), b"hello", Some(to), &Default::default())
    }
}

fn errno(errno: Errno) -> i32 {
    errno.raw()
}

#[test]
fn a_batch_with_an_error_changes_nothing() {
    let world = World::new();
    let failed =
        world.batch(&[table("t"), chain("c", None), jump("c", "nowhere"), jump("zz", "c"), table("u")]);
    assert_eq!(failed, [errno(Errno::ENOENT), errno(Errno::ENOENT)]);
    assert_eq!(
        (world.count(msg::GETTABLE, |_| {}), world.rules.bytes(), world.rules.generation()),
        (0, 0, 1)
    );
    // A batch that does not end is tried and given up (`nft --check`).
    assert!(world.outcome(&[table("t")], false).answers.is_empty());
    assert_eq!(world.rules.generation(), 1);
    assert_eq!(world.batch(&[table("t"), table("u")]), []);
    assert_eq!((world.count(msg::GETTABLE, |_| {}), world.rules.generation()), (2, 2));
}

#[test]
fn an_old_generation_is_sent_back() {
    let world = World::new();
    assert_eq!(world.batch(&[table("t")]), []);
    let mut bytes = message(16, flag::REQUEST, 0, NFTABLES.into(), |out| out.be32(1, 1));
    bytes.extend(table("u"));
    let answers = world.rules.batch(&bytes, &asker(NOW)).answers;
    assert_eq!(answers[0][16..20], (-Errno::ERESTART.raw()).to_ne_bytes());
}

#[test]
fn circles_and_long_ways_are_refused_where_packets_come_by() {
    let world = World::new();
    let setup = [table("t"), chain("a", None), chain("b", None), chain("base", Some(1))];
    assert_eq!(world.batch(&setup), []);
    assert_eq!(world.batch(&[jump("a", "b"), jump("b", "a")]), []);
    assert_eq!(world.batch(&[jump("base", "a")]), [errno(Errno::EMLINK)]);
    let names: Vec<String> = (0..16).map(|n| format!("c{n}")).collect();
    let chains: Vec<_> = names.iter().map(|name| chain(name, None)).collect();
    assert_eq!(world.batch(&chains), []);
    let jumps: Vec<_> = names.windows(2).map(|pair| jump(&pair[0], &pair[1])).collect();
    assert_eq!(world.batch(&jumps), []);
    assert_eq!(world.batch(&[jump("base", "c1")]), []);
    assert_eq!(world.batch(&[jump("base", "c0")]), [errno(Errno::EMLINK)]);
}

#[test]
fn chains_in_use_stay() {
    let world = World::new();
    assert_eq!(world.batch(&[table("t"), chain("a", None), chain("b", None), jump("a", "b")]), []);
    let delete = |name: &str| {
        ask(msg::DELCHAIN, 0, |out| {
            out.text(1, b"t");
            out.text(3, name.as_bytes());
        })
    };
    assert_eq!(world.batch(&[delete("b")]), [errno(Errno::EBUSY)]);
    assert_eq!(world.batch(&[delete("a"), delete("b")]), []);
    assert_eq!(world.count(msg::GETCHAIN, |_| {}), 0);
}

#[test]
fn rules_are_bounded_by_memory() {
    let world = World::new();
    assert_eq!(world.batch(&[table("t"), chain("c", None)]), []);
    let big = rule("c", |out| (0..100).for_each(|_| expr(out, "counter", |_| {})));
    let many: Vec<_> = (0..2000).map(|_| big.clone()).collect();
    let mut failed = Vec::new();
    for _ in 0..10 {
        failed = world.batch(&many);
        if !failed.is_empty() {
            break;
        }
    }
    assert_eq!(failed.first(), Some(&errno(Errno::ENOMEM)));
    assert!(world.rules.bytes() <= crate::budget::LIMIT);
    assert_eq!(world.batch(&[ask(msg::DELTABLE, 0, |_| {})]), []);
    assert_eq!(world.rules.bytes(), 0);
}

#[test]
fn sets_hold_what_their_size_says_and_intervals_do_not_overlap() {
    let world = World::new();
    assert_eq!(world.batch(&[table("t"), set("small", 0, 2), set("ranges", 4, 0)]), []);
    assert_eq!(world.batch(&[elements("small", &[1, 2], 0)]), []);
    assert_eq!(world.batch(&[elements("small", &[3], 0)]), [errno(Errno::ENFILE)]);
    assert_eq!(world.batch(&[elements("small", &[2], 0)]), []);
    assert_eq!(world.batch(&[elements("ranges", &[10], 0), elements("ranges", &[20], 1)]), []);
    assert_eq!(world.batch(&[elements("ranges", &[15], 0)]), [errno(Errno::EEXIST)]);
    assert_eq!(world.batch(&[elements("ranges", &[20], 0), elements("ranges", &[30], 1)]), []);
    assert_eq!(world.batch(&[elements("nosuch", &[1], 0)]), [errno(Errno::ENOENT)]);
}

/// A packet fills a set up to its size; expired elements make room.
#[test]
fn packets_fill_a_set() {
    let mut world = World::new();
    let fill = rule("out", |out| {
        expr(out, "payload", |out| {
            [(1, 1), (2, 2), (3, 2), (4, 2)].into_iter().for_each(|(kind, value)| out.be32(kind, value));
        });
        expr(out, "dynset", |out| {
            out.text(1, b"ports");
            out.be32(3, 0);
            out.be32(4, 1);
            out.be64(6, 1000);
        });
        verdict(out, 0, None);
    });
    const DYNAMIC: u32 = 0x30;
    assert_eq!(world.batch(&[table("t"), chain("out", Some(3)), set("ports", DYNAMIC, 3), fill]), []);
    let live = |world: &World| {
        let bytes = ask(msg::GETSETELEM, flag::DUMP, |out| {
            out.text(1, b"t");
            out.text(2, b"ports");
        });
        let (request, _) = Request::next(&bytes).unwrap();
        let datagrams = world.rules.get(&request, &asker(world.now)).unwrap();
        let list = Attrs::new(&datagrams[0][20..], 20).get(3).unwrap();
        list.nested().iter().count()
    };
    // Packets from members of the set are dropped; the other packets find it full.
    let sent: Vec<_> = (1..=5).map(|port| world.send(port).is_ok()).collect();
    assert_eq!(sent, [false, false, false, true, true]);
    assert_eq!(live(&world), 3);
    // A full set is looked through once in a second: the fourth packet did.
    world.now += 999;
    assert!(world.send(9).is_ok());
    world.now += 1001;
    assert_eq!(live(&world), 0);
    assert!(world.send(9).is_err());
    assert_eq!(live(&world), 1);
    assert_eq!(world.batch(&[ask(msg::DELTABLE, 0, |_| {})]), []);
    assert_eq!((world.rules.bytes(), world.send(1)), (0, Ok(5)));
}

/// Messages with a few bytes changed, cut off or repeated: refused or not, but neither a panic nor memory that stays.
#[test]
fn nonsense_is_refused() {
    let whole = [
        table("t"),
        chain("c", Some(1)),
        chain("d", None),
        set("s", 4, 0),
        elements("s", &[1, 5], 0),
        elements("s", &[9], 1),
        jump("c", "d"),
        rule("c", |out| {
            expr(out, "meta", |out| {
                [(1, 8), (2, 16)].into_iter().for_each(|(kind, value)| out.be32(kind, value))
            });
            expr(out, "bitwise", |out| {
                [(1, 8), (2, 1), (3, 4)].into_iter().for_each(|(k, v)| out.be32(k, v))
            });
            expr(out, "limit", |out| {
                [(1, 5), (2, 1)].into_iter().for_each(|(kind, value)| out.be64(kind, value))
            });
            verdict(out, 1, None);
        }),
    ];
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let world = World::new();
    for _ in 0..3000 {
        let mut messages = whole.to_vec();
        for _ in 0..1 + random(4) {
            let one = random(messages.len());
            let bytes = &mut messages[one];
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] = random(256) as u8,
                1 => bytes.truncate(at),
                2 => bytes.extend_from_slice(&whole[random(whole.len())]),
                _ => bytes[at] ^= 1 << random(8),
            }
            if bytes.is_empty() {
                messages.remove(one);
            }
        }
        world.outcome(&messages, true);
        let _ = world.send(1);
        world.count(msg::GETRULE, |_| {});
        world.batch(&[message(u16::from(NFTABLES) << 8 | 2, flag::REQUEST, 0, 0, |_| {})]);
        assert_eq!(world.rules.bytes(), 0);
    }
}

/// What a batch is answered, and what listeners hear of it, ends where the room ends.
#[test]
fn answers_and_events_are_bounded() {
    let world = World::new();
    let mut bytes = message(16, flag::REQUEST, 0, NFTABLES.into(), |_| {});
    let wanted = ask(msg::NEWTABLE, flag::CREATE | flag::ACK | flag::ECHO, |out| {
        out.text(1, b"t");
    });
    bytes.extend(wanted.repeat(40_000));
    bytes.extend(message(17, flag::REQUEST, 0, NFTABLES.into(), |_| {}));
    let outcome = world.rules.batch(&bytes, &Asker { room: 1000, ..asker(NOW) });
    assert!(outcome.full);
    assert!(outcome.answers.len() < 50);
    let bytes: usize = outcome.events.iter().map(|event| event.message.len()).sum();
    assert!(bytes <= crate::api::EVENTS_MAX + 1000, "{bytes}");
}

/// Rules of many expressions, in chains that call each other twice at every level.
#[test]
fn a_packet_makes_a_bounded_amount_of_work() {
    const LEVELS: usize = 10;
    let world = World::new();
    let name = |level: usize| format!("c{level}");
    let mut setup = vec![table("t")];
    setup.extend((0..=LEVELS).map(|level| chain(&name(level), None)));
    for level in 0..LEVELS {
        setup.extend([jump(&name(level), &name(level + 1)), jump(&name(level), &name(level + 1))]);
    }
    let counters =
        |count: usize| rule(&name(LEVELS), |out| (0..count).for_each(|_| expr(out, "counter", |_| {})));
    setup.extend([chain("out", Some(3)), jump("out", "c0"), counters(100)]);
    assert_eq!(world.batch(&setup), []);
    // 1,024 times 100 expressions.
    assert_eq!(world.send(1), Ok(5));
    assert_eq!(world.batch(&[counters(100), counters(100)]), []);
    assert!(world.send(1).is_err());
}

/// Searches from one end to the other are counted: here those for the last of many rules' places.
#[test]
fn a_batch_makes_a_bounded_amount_of_work() {
    const RULES: usize = 20_000;
    let world = World::new();
    let one = rule("c", |_| {});
    assert_eq!(world.batch(&[table("t"), chain("c", None)]), []);
    assert_eq!(world.batch(&vec![one.clone(); RULES]), []);
    let first = ask(msg::NEWRULE, flag::CREATE, |out| {
        out.text(1, b"t");
        out.text(2, b"c");
        out.be64(6, u64::MAX);
    });
    let before = world.rules.bytes();
    let failed = world.batch(&vec![first; crate::api::WORK / RULES + 10]);
    assert_eq!((failed.first(), failed.last()), (Some(&errno(Errno::ENOENT)), Some(&errno(Errno::ENOMEM))));
    assert_eq!(world.batch(&[one]), []);
    assert!(world.rules.bytes() > before);
}

#[test]
fn rules_come_back_with_their_handles() {
    let world = World::new();
    let count = |out: &mut Writer| expr(out, "counter", |_| {});
    let lookup = |out: &mut Writer| {
        expr(out, "payload", |out| {
            out.be32(1, 1);
            out.be32(2, 2);
            out.be32(3, 0);
            out.be32(4, 4);
        });
        expr(out, "lookup", |out| {
            out.text(1, b"s");
            out.be32(2, 1);
        });
    };
    assert_eq!(world.batch(&[table("u"), table("t"), chain("gone", None)]), []);
    let base = [chain("in", Some(1)), chain("b", None), set("s", 0, 10), elements("s", &[5, 6, 7], 0)];
    assert_eq!(world.batch(&base), []);
    let first = ask(msg::NEWRULE, flag::CREATE, |out| {
        out.text(1, b"t");
        out.text(2, b"in");
        out.nest(4, count);
    });
    // The last rule comes first.
    assert_eq!(world.batch(&[jump("in", "b"), rule("b", count), rule("b", lookup), first]), []);
    let gone = ask(msg::DELCHAIN, 0, |out| {
        out.text(1, b"t");
        out.text(3, b"gone");
    });
    assert_eq!(world.batch(&[gone, ask(msg::DELTABLE, 0, |out| out.text(1, b"u"))]), []);
    world.send(9).unwrap();
    let saved = world.rules.saved(world.now);
    let again = World::new();
    again.rules.restore(&saved, again.now).unwrap();
    assert_eq!(again.rules.saved(again.now), saved);
    assert_eq!(again.rules.generation(), world.rules.generation());
    // The next handles follow, and packets are counted.
    let more = [chain("new", None), rule("b", count)];
    assert_eq!((world.batch(&more), again.batch(&more)), (vec![], vec![]));
    assert_eq!(again.rules.saved(again.now), world.rules.saved(world.now));
    again.send(9).unwrap();
    assert_ne!(again.rules.saved(again.now), world.rules.saved(world.now));

    let refused = |change: &dyn Fn(&mut crate::NftablesState)| {
        let (mut bad, world) = (saved.clone(), World::new());
        change(&mut bad);
        assert!(world.rules.restore(&bad, world.now).is_err(), "{bad:?}");
        assert_eq!((world.rules.bytes(), world.count(msg::GETTABLE, |_| {})), (0, 0));
    };
    refused(&|s| s.tables[0].table.handle = 0);
    refused(&|s| s.tables[0].table.handle = u64::MAX);
    refused(&|s| s.tables.push(s.tables[0].clone()));
    refused(&|s| s.tables[0].table.message = table("t").split_off(4));
    refused(&|s| s.tables[0].table.message.clear());
    refused(&|s| s.tables[0].items.reverse());
    refused(&|s| s.tables[0].items[0].handle = 1 << 60);
    refused(&|s| s.tables[0].items[1].message = table("other"));
    refused(&|s| s.tables[0].items[1].message.push(0));
    refused(&|s| s.tables[0].items.truncate(1));
    refused(&|s| s.tables[0].order[0].1.push(77));
    refused(&|s| s.tables[0].order[0].0 = 999);
    refused(&|s| s.tables[0].elements[0] = serde_bytes::ByteBuf::from(chain("in", None)));
    let cut = |s: &mut crate::NftablesState| {
        let item = &mut s.tables[0].items[0].message;
        item.truncate(21);
    };
    refused(&cut);
}
