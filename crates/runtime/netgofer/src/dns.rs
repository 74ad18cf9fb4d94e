//! Messages of the domain name system, as far as a gofer needs them: RFC 1035, and RFC 6891 for the size of answers. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Bytes of a message's header.
const HEADER: usize = 12;
/// Longest message over UDP that is asked for.
const SIZE: u16 = 1232;
/// What every receiver takes.
const SMALL: u16 = 512;
/// Most records of an answer that are looked at.
const MAX_RECORDS: usize = 256;
/// Most links of a chain of aliases.
const MAX_ALIASES: usize = 16;

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const OPT: u16 = 41;
const IN: u16 = 1;

/// Response codes.
pub(crate) const SERVFAIL: u8 = 2;
pub(crate) const REFUSED: u8 = 5;

/// A question, alone in its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The message's number.
    pub(crate) id: u16,
    /// In lower case, without a dot at the end.
    pub(crate) name: String,
    /// Type of the records.
    pub(crate) kind: u16,
    /// The bytes: name, type and class.
    bytes: Vec<u8>,
    recursion: bool,
    /// Room for the answer, if the message says so.
    size: Option<u16>,
}

impl Question {
    /// From a query; `None` for anything else.
    pub(crate) fn parse(message: &[u8]) -> Option<Question> {
        let flags = word(message, 2)?;
        // A query with opcode QUERY, one question, no answer.
        if flags & 0xf800 != 0 || word(message, 4)? != 1 || word(message, 6)? != 0 || word(message, 8)? != 0 {
            return None;
        }
        let (name, at) = name(message, HEADER)?;
        if word(message, at + 2)? != IN {
            return None;
        }
        // The first additional record that says how much the sender takes.
        let (mut next, mut size) = (at + 4, None);
        for _ in 0..word(message, 10)?.min(4) {
            let record = Record::parse(message, next)?;
            if record.kind == OPT {
                size = Some(record.class.clamp(SMALL, 4096));
            }
            next = record.end;
        }
        let bytes = message.get(HEADER..at + 4)?.to_vec();
        Some(Question {
            id: word(message, 0)?,
            name,
            kind: word(message, at)?,
            bytes,
            recursion: flags & 0x100 != 0,
            size,
        })
    }

    /// A question of our own for the addresses of a name.
    pub(crate) fn for_addresses(name: &str, v6: bool) -> Question {
        let mut bytes = Vec::new();
        for label in name.split('.') {
            bytes.push(label.len() as u8);
            bytes.extend(label.as_bytes());
        }
        let kind = if v6 { AAAA } else { A };
        bytes.push(0);
        bytes.extend(kind.to_be_bytes());
        bytes.extend(IN.to_be_bytes());
        Question { id: 0, name: name.into(), kind, bytes, recursion: true, size: Some(SIZE) }
    }

    /// The query that a name server gets: this question and nothing else of the message that it came in.
    pub(crate) fn query(&self, id: u16) -> Vec<u8> {
        let mut out = id.to_be_bytes().to_vec();
        out.extend(if self.recursion { [1, 0] } else { [0, 0] });
        let additional = u8::from(self.size.is_some());
        out.extend([0, 1, 0, 0, 0, 0, 0, additional]);
        let tail = self.bytes.len().saturating_sub(4);
        out.extend(self.bytes[..tail].to_ascii_lowercase());
        out.extend(&self.bytes[tail..]);
        if let Some(size) = self.size {
            out.extend([0, 0, OPT as u8]);
            out.extend(size.to_be_bytes());
            out.extend([0; 6]);
        }
        out
    }

    /// An answer without records.
    pub(crate) fn failure(&self, code: u8) -> Vec<u8> {
        self.answer(code, &[])
    }

    /// An answer with the addresses that the question is about, or without records for a question about something else.
    pub(crate) fn addresses(&self, ips: impl Iterator<Item = IpAddr>) -> Vec<u8> {
        let ips: Vec<IpAddr> = ips
            .filter(|ip| matches!((self.kind, ip), (A, IpAddr::V4(_)) | (AAAA, IpAddr::V6(_))))
            .take(16)
            .collect();
        self.answer(0, &ips)
    }

    fn answer(&self, code: u8, ips: &[IpAddr]) -> Vec<u8> {
        let mut out = self.id.to_be_bytes().to_vec();
        out.extend([0x80 | u8::from(self.recursion), 0x80 | code]);
        out.extend([0, 1, 0, ips.len() as u8, 0, 0, 0, 0]);
        out.extend(&self.bytes);
        for ip in ips {
            // The question's name, for a minute.
            out.extend([0xc0, HEADER as u8]);
            out.extend(self.kind.to_be_bytes());
            out.extend([0, IN as u8, 0, 0, 0, 60]);
            let octets = match ip {
                IpAddr::V4(v4) => v4.octets().to_vec(),
                IpAddr::V6(v6) => v6.octets().to_vec(),
            };
            out.extend([0, octets.len() as u8]);
            out.extend(octets);
        }
        out
    }

    /// A name server's answer to [`query`](Self::query) in the form in which the sender of the question expects it.
    pub(crate) fn relay(&self, answer: &[u8]) -> Vec<u8> {
        let mut out = answer.to_vec();
        if let Some(id) = out.get_mut(..2) {
            id.copy_from_slice(&self.id.to_be_bytes());
        }
        // In the sender's own letters.
        if let Some(question) = out.get_mut(HEADER..HEADER + self.bytes.len()) {
            question.copy_from_slice(&self.bytes);
        }
        if out.len() > usize::from(self.size.unwrap_or(SMALL)) {
            // Cut short: the header says so, and counts no records.
            out.truncate(HEADER + self.bytes.len());
            out[2] |= 2;
            out[6..HEADER].fill(0);
        }
        out
    }
}

/// What a name server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The response code.
    pub(crate) code: u8,
    /// The addresses that the name leads to, aliases followed, and for how long.
    pub(crate) addresses: Vec<(IpAddr, Duration)>,
}

impl Answer {
    /// From a message; `None` unless it answers that query. `id` is the query's.
    pub(crate) fn parse(message: &[u8], id: u16, question: &Question) -> Option<Answer> {
        let flags = word(message, 2)?;
        if word(message, 0)? != id || flags & 0xf800 != 0x8000 || word(message, 4)? != 1 {
            return None;
        }
        let (asked, at) = name(message, HEADER)?;
        if asked != question.name || word(message, at)? != question.kind || word(message, at + 2)? != IN {
            return None;
        }
        let (mut next, mut records) = (at + 4, Vec::new());
        for _ in 0..usize::from(word(message, 6)?).min(MAX_RECORDS) {
            // A message that is cut short ends here.
            let Some(record) = Record::parse(message, next) else { break };
            next = record.end;
            records.push(record);
        }
        Some(Answer { code: (flags & 0xf) as u8, addresses: addresses(message, &records, &asked) })
    }
}

/// The addresses of `name` and of what it is an alias for.
fn addresses(message: &[u8], records: &[Record], name_asked: &str) -> Vec<(IpAddr, Duration)> {
    let mut known: BTreeSet<String> = [name_asked.to_string()].into();
    for _ in 0..MAX_ALIASES {
        let aliases = records.iter().filter(|r| r.kind == CNAME && r.class == IN && known.contains(&r.owner));
        let new: Vec<String> = aliases.filter_map(|r| Some(name(message, r.data)?.0)).collect();
        let before = known.len();
        known.extend(new);
        if known.len() == before {
            break;
        }
    }
    let of = |record: &&Record| record.class == IN && known.contains(&record.owner);
    let address = |record: &Record| {
        let data = message.get(record.data..record.end)?;
        let ip: IpAddr = match record.kind {
            A => Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).into(),
            AAAA => Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).into(),
            _ => return None,
        };
        Some((ip, Duration::from_secs(record.ttl.into())))
    };
    records.iter().filter(of).filter_map(address).collect()
}

/// A resource record.
struct Record {
    owner: String,
    kind: u16,
    class: u16,
    ttl: u32,
    /// Where its data begin, and end.
    data: usize,
    end: usize,
}

impl Record {
    fn parse(message: &[u8], at: usize) -> Option<Record> {
        let (owner, at) = name(message, at)?;
        let ttl = u32::from(word(message, at + 4)?) << 16 | u32::from(word(message, at + 6)?);
        let (data, length) = (at + 10, usize::from(word(message, at + 8)?));
        message.get(data..data + length)?;
        Some(Record {
            owner,
            kind: word(message, at)?,
            class: word(message, at + 2)?,
            ttl,
            data,
            end: data + length,
        })
    }
}

/// The name at an offset, in lower case, and where the message goes on. Bytes that a host name does not have are escaped.
fn name(message: &[u8], at: usize) -> Option<(String, usize)> {
    let (mut out, mut at, mut end) = (String::new(), at, None);
    // Each pointer leads further back, so this ends; the bound is for the length of the name.
    let mut lowest = at;
    loop {
        let length = usize::from(*message.get(at)?);
        match length {
            0 => return Some((out, end.unwrap_or(at + 1))),
            1..64 => {
                if !out.is_empty() {
                    out.push('.');
                }
                for &byte in message.get(at + 1..at + 1 + length)? {
                    match byte {
                        b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                            out.push(byte.to_ascii_lowercase().into())
                        }
                        _ => out.push_str(&format!("\\{byte:03}")),
                    }
                }
                if out.len() > 4 * 255 {
                    return None;
                }
                at += 1 + length;
            }
            192.. => {
                let target = (length & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
                end.get_or_insert(at + 2);
                if target >= lowest {
                    return None;
                }
                (at, lowest) = (target, target);
            }
            _ => return None,
        }
    }
}

fn word(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, edns: bool) -> Vec<u8> {
        let mut q = Question::for_addresses(name, false);
        q.size = edns.then_some(4096);
        q.query(0x1234)
    }

    /// An answer to `query` with records of (name as bytes, type, data).
    fn answer(query: &[u8], records: &[(&[u8], u16, &[u8])]) -> Vec<u8> {
        let question = Question::parse(query).unwrap();
        let mut out = question.failure(0);
        out[7] = records.len() as u8;
        for (owner, kind, data) in records {
            out.extend(*owner);
            out.extend(kind.to_be_bytes());
            out.extend([0, 1, 0, 0, 1, 0, 0, data.len() as u8]);
            out.extend(*data);
        }
        out
    }

    #[test]
    fn questions() {
        let q = Question::parse(&query("Index.EXAMPLE", true)).unwrap();
        assert_eq!((q.id, q.name.as_str(), q.kind, q.size), (0x1234, "index.example", A, Some(4096)));
        assert_eq!(Question::parse(&query("a", false)).unwrap().size, None);
        let whole = query("index.example", true);
        for cut in 0..whole.len() {
            assert!(Question::parse(&whole[..cut]).is_none(), "{cut}");
        }
        let mut response = whole.clone();
        response[2] |= 0x80;
        assert!(Question::parse(&response).is_none());
    }

    #[test]
    fn a_server_gets_nothing_but_the_question() {
        let mut sent = query("index.example", false);
        // The letters' case and a record that could say something.
        sent[13] = b'I';
        sent[11] = 1;
        sent.extend([0, 0, 16, 0, 1, 0, 0, 0, 0, 0, 4, 3, b's', b'e', b'c']);
        let q = Question::parse(&sent).unwrap();
        assert_eq!(q.query(7)[2..], query("index.example", false)[2..]);
        // And its answer comes back in the letters of the question.
        let relayed = q.relay(&answer(&q.query(7), &[]));
        assert_eq!((&relayed[..2], relayed[13]), (&[0x12, 0x34][..], b'I'));
    }

    #[test]
    fn addresses_of_a_name_and_its_aliases() {
        let sent = query("www.example", false);
        let alias = b"\x01x\xc0\x10"; // x.example, where "example" is in the question
        let got = answer(
            &sent,
            &[
                (b"\xc0\x0c", CNAME, alias),
                (b"\x01x\xc0\x10", A, &[192, 0, 2, 1]),
                (b"\x01y\xc0\x10", A, &[192, 0, 2, 2]),
                (b"\xc0\x0c", AAAA, &[0x20; 16]),
                (b"\xc0\x0c", A, &[1, 2, 3]),
            ],
        );
        let q = Question::parse(&sent).unwrap();
        let a = Answer::parse(&got, 0x1234, &q).unwrap();
        let ips: Vec<String> = a.addresses.iter().map(|(ip, _)| ip.to_string()).collect();
        assert_eq!(ips, ["192.0.2.1", "2020:2020:2020:2020:2020:2020:2020:2020"]);
        assert_eq!(a.addresses[0].1, Duration::from_secs(256));
        assert!(Answer::parse(&got, 0x1235, &q).is_none());
        let other = Question::parse(&query("other.example", false)).unwrap();
        assert!(Answer::parse(&got, 0x1234, &other).is_none());
    }

    #[test]
    fn names_end() {
        let looped = [b"\0\0\x01\0\0\x01\0\0\0\0\0\0".as_slice(), b"\xc0\x0c\0\x01\0\x01"].concat();
        assert!(Question::parse(&looped).is_none());
        let odd = [b"\0\0\x01\0\0\x01\0\0\0\0\0\0".as_slice(), b"\x02.\xff\0\0\x01\0\x01"].concat();
        assert_eq!(Question::parse(&odd).unwrap().name, "\\046\\255");
    }

    #[test]
    fn answers_that_are_too_long_say_so() {
        let q = Question::parse(&query("www.example", false)).unwrap();
        let long: Vec<(&[u8], u16, &[u8])> = vec![(b"\xc0\x0c", A, &[1, 2, 3, 4]); 40];
        let relayed = q.relay(&answer(&q.query(1), &long));
        assert_eq!((relayed[2] & 2, relayed[7], relayed.len()), (2, 0, HEADER + q.bytes.len()));
    }

    #[test]
    fn answers_of_our_own() {
        let q = Question::parse(&query("www.example", false)).unwrap();
        let ips = ["192.0.2.1".parse().unwrap(), "::1".parse().unwrap()];
        let a = Answer::parse(&q.addresses(ips.into_iter()), 0x1234, &q).unwrap();
        assert_eq!((a.code, a.addresses.len(), a.addresses[0].0), (0, 1, ips[0]));
        assert_eq!(Answer::parse(&q.failure(REFUSED), 0x1234, &q).unwrap().code, REFUSED);
    }
}
