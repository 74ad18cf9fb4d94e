//! Names: their addresses, and questions that name servers have not answered yet.
//!
//! Addresses come from the host's file of hosts and from the host's name servers, never from the sandbox. An address is
//! valid for the time in its record, and a while longer for programs that keep addresses.

use crate::dns::{Answer, Question, SERVFAIL};
use crate::policy::{Names, is_below};
use crate::private::{Own, is_private};
use hostsys::net;
use netproto::address::to_sockaddr;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The port of name servers.
pub(crate) const PORT: u16 = 53;
/// Most questions on their way at a time.
const MAX_PENDING: usize = 64;
/// How long one server may take, and how often one is asked.
const PATIENCE: Duration = Duration::from_secs(2);
const TRIES: usize = 4;
/// How long an address stays good beyond its record's time, and that time's bounds.
const GRACE: Duration = Duration::from_secs(300);
const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(86400);
/// Most names, and addresses of one name, that are remembered.
const MAX_NAMES: usize = 4096;
const MAX_ADDRESSES: usize = 1024;
/// Most lines of the log about addresses that names do not count for.
const MAX_SAID: usize = 256;

/// The socket that asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    /// The sandbox's socket.
    pub(crate) socket: u64,
    /// The name server that it thinks it asked.
    pub(crate) server: SocketAddr,
}

struct Pending {
    socket: OwnedFd,
    id: u16,
    question: Question,
    /// None for a question of our own.
    client: Option<Client>,
    tries: usize,
    deadline: Instant,
}

/// The names of a sandbox.
pub(crate) struct Resolver {
    servers: Vec<IpAddr>,
    hosts: HashMap<String, Vec<IpAddr>>,
    learned: HashMap<String, HashMap<IpAddr, Instant>>,
    pending: Vec<Pending>,
    /// When names of the policy are to be looked up again.
    refresh: Vec<(String, Instant)>,
    /// The host's addresses, to which no name server leads.
    own: Own,
    /// What was said of names that lead to private addresses.
    said: BTreeSet<(String, IpAddr)>,
}

impl Resolver {
    /// With the host's name servers, its file of hosts and its addresses. `names` are looked up from time to time.
    pub(crate) fn new(
        servers: Vec<IpAddr>,
        hosts: Vec<(String, IpAddr)>,
        names: &[&str],
        own: Own,
    ) -> Resolver {
        let mut known: HashMap<String, Vec<IpAddr>> = HashMap::new();
        for (name, ip) in hosts {
            known.entry(name).or_default().push(ip);
        }
        let now = Instant::now();
        let refresh = match servers.is_empty() {
            true => Vec::new(),
            false => names.iter().map(|name| (name.to_string(), now)).collect(),
        };
        Resolver {
            servers,
            hosts: known,
            learned: HashMap::new(),
            pending: Vec::new(),
            refresh,
            own,
            said: BTreeSet::new(),
        }
    }

    /// Answers a question about a name that may be looked up: at once, or later through [`ready`](Self::ready) or
    /// [`tick`](Self::tick).
    pub(crate) fn ask(&mut self, question: Question, client: Client) -> Option<Vec<u8>> {
        if let Some(ips) = self.hosts.get(&question.name) {
            return Some(question.addresses(ips.iter().copied()));
        }
        let failure = question.failure(SERVFAIL);
        self.send(question, Some(client), 0).then_some(()).map_or(Some(failure), |()| None)
    }

    /// Sends a question to the server that is next; false if that cannot be done.
    fn send(&mut self, question: Question, client: Option<Client>, tries: usize) -> bool {
        if self.servers.is_empty() || self.pending.len() >= MAX_PENDING || tries >= TRIES {
            return false;
        }
        let server = SocketAddr::new(self.servers[tries % self.servers.len()], PORT);
        let sent = random().and_then(|id| Some((id, send_to(server, &question.query(id))?)));
        match sent {
            Some((id, socket)) => {
                let deadline = Instant::now() + PATIENCE;
                self.pending.push(Pending { socket, id, question, client, tries, deadline });
                true
            }
            // The next one may be reached.
            None => self.send(question, client, tries + 1),
        }
    }

    /// Sockets that answers come in on, in the order for [`ready`](Self::ready).
    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pending.iter().map(|pending| pending.socket.as_fd())
    }

    /// Takes what has come in on the socket at that place, from the last place to the first. Returns the client and its
    /// answer.
    pub(crate) fn ready(&mut self, place: usize) -> Option<(Client, Vec<u8>)> {
        let pending = self.pending.get(place)?;
        let mut buffer = vec![0; 4096];
        let length = match net::receive(&pending.socket, &mut buffer, &mut [], 0) {
            Ok(received) => received.len,
            Err(abi::Errno::EAGAIN) => return None,
            // No server listens there: the next one.
            Err(_) => return self.retry(place),
        };
        let message = &buffer[..length.min(buffer.len())];
        // What answers something else may be an attempt to be quicker than the server.
        let answer = Answer::parse(message, pending.id, &pending.question)?;
        let Pending { question, client, .. } = self.pending.remove(place);
        self.learn(&question.name, &answer);
        client.map(|client| (client, question.relay(message)))
    }

    fn retry(&mut self, place: usize) -> Option<(Client, Vec<u8>)> {
        let Pending { question, client, tries, .. } = self.pending.remove(place);
        let failure = question.failure(SERVFAIL);
        if self.send(question, client, tries + 1) {
            return None;
        }
        client.map(|client| (client, failure))
    }

    fn learn(&mut self, name: &str, answer: &Answer) {
        let now = Instant::now();
        if self.learned.len() >= MAX_NAMES && !self.learned.contains_key(name) {
            self.learned.retain(|_, ips| ips.values().any(|until| *until > now));
            if self.learned.len() >= MAX_NAMES {
                return;
            }
        }
        let ips = self.learned.entry(name.to_string()).or_default();
        ips.retain(|_, until| *until > now);
        for (ip, ttl) in &answer.addresses {
            let ip = ip.to_canonical();
            // A foreign name must not lead into the host or its networks.
            if is_private(ip) || self.own.holds(ip) {
                if self.said.len() < MAX_SAID && self.said.insert((name.to_string(), ip)) {
                    log::warn!(
                        "network: the name {name} leads to {ip}, which is private or this host's own: that takes an entry of \
                         --allow-net with the address"
                    );
                }
            } else if ips.len() < MAX_ADDRESSES {
                ips.insert(ip, now + (*ttl).clamp(SHORTEST, LONGEST) + GRACE);
            }
        }
        if let Some((_, at)) = self.refresh.iter_mut().find(|(known, _)| known == name) {
            let shortest = answer.addresses.iter().map(|(_, ttl)| *ttl).min().unwrap_or(SHORTEST);
            *at = now + shortest.clamp(SHORTEST, LONGEST);
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|p| p.deadline).chain(self.refresh.iter().map(|(_, at)| *at)).min()
    }

    /// Asks again what was not answered in time and what may have changed. Returns the clients and their answers.
    pub(crate) fn tick(&mut self) -> Vec<(Client, Vec<u8>)> {
        let now = Instant::now();
        let mut told = Vec::new();
        for place in (0..self.pending.len()).rev() {
            if self.pending[place].deadline <= now {
                told.extend(self.retry(place));
            }
        }
        let due: Vec<String> =
            self.refresh.iter().filter(|(_, at)| *at <= now).map(|(name, _)| name.clone()).collect();
        for name in due {
            for v6 in [false, true] {
                self.send(Question::for_addresses(&name, v6), None, 0);
            }
            if let Some((_, at)) = self.refresh.iter_mut().find(|(known, _)| *known == name) {
                *at = now + SHORTEST;
            }
        }
        told
    }

    /// The socket is gone: its answers are not awaited any more.
    pub(crate) fn forget(&mut self, socket: u64) {
        self.pending.retain(|pending| pending.client.is_none_or(|client| client.socket != socket));
    }
}

impl Names for Resolver {
    /// An address of the file of hosts counts whatever it is: the host's administrator has given it this name.
    fn leads_to(&self, name: &str, ip: IpAddr) -> bool {
        self.hosts.get(name).is_some_and(|ips| ips.contains(&ip)) || self.has_learned(name, ip)
    }

    /// An address of the file of hosts counts if it is public: the policy may not mean the host's own name in this domain.
    fn below_leads_to(&self, parent: &str, ip: IpAddr) -> bool {
        self.learned.keys().any(|name| is_below(name, parent) && self.has_learned(name, ip))
            || self.hosts.iter().any(|(name, ips)| is_below(name, parent) && ips.contains(&ip))
                && !is_private(ip)
                && !self.own.holds(ip)
    }
}

impl Resolver {
    /// Whether a name server says so, and still may. The host may have got the address since it was learnt.
    fn has_learned(&self, name: &str, ip: IpAddr) -> bool {
        let until = self.learned.get(name).and_then(|ips| ips.get(&ip));
        until.is_some_and(|until| *until > Instant::now()) && !self.own.holds(ip)
    }
}

fn send_to(server: SocketAddr, query: &[u8]) -> Option<OwnedFd> {
    let domain = if server.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = net::socket(domain, libc::SOCK_DGRAM, 0).ok()?;
    net::connect(&socket, &to_sockaddr(&server)).ok()?;
    net::send(&socket, query, 0).ok()?;
    Some(socket)
}

fn random() -> Option<u16> {
    let mut bytes = [0; 2];
    let read = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    (read == 2).then_some(u16::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(ip: &str, ttl: u64) -> Answer {
        Answer { code: 0, addresses: vec![(ip.parse().unwrap(), Duration::from_secs(ttl))] }
    }

    #[test]
    fn what_names_lead_to() {
        let hosts = vec![("db.example".to_string(), "127.0.0.1".parse().unwrap())];
        let mut names = Resolver::new(Vec::new(), hosts, &[], Own::of(&["203.0.113.1"]));
        names.learn("index.example", &answer("192.0.2.7", 0));
        names.learn("index.example", &answer("192.0.2.8", 9));
        names.learn("evil.example", &answer("127.0.0.1", 60));
        names.learn("evil.example", &answer("169.254.169.254", 60));
        let leads = |name: &str, ip: &str| names.leads_to(name, ip.parse().unwrap());
        // A server that gives another address each time changes nothing for clients that have the first one.
        assert!(leads("index.example", "192.0.2.7") && leads("index.example", "192.0.2.8"));
        assert!(leads("db.example", "127.0.0.1") && !leads("evil.example", "127.0.0.1"));
        assert!(!leads("evil.example", "169.254.169.254"));
        names.learn("evil.example", &answer("203.0.113.1", 60));
        names.learn("evil.example", &answer("203.0.113.2", 60));
        names.learn("evil.example", &answer("::ffff:10.0.0.1", 60));
        let leads = |name: &str, ip: &str| names.leads_to(name, ip.parse().unwrap());
        assert!(leads("evil.example", "203.0.113.2") && !leads("evil.example", "203.0.113.1"));
        assert!(!leads("evil.example", "10.0.0.1"));
        // The host gets an address that a name has led to before.
        names.own = Own::of(&["203.0.113.2"]);
        assert!(!names.leads_to("evil.example", "203.0.113.2".parse().unwrap()));
        // The file of hosts is not asked for whole domains if it says something private.
        assert!(!names.below_leads_to("example", "127.0.0.1".parse().unwrap()));
        assert!(names.below_leads_to("example", "192.0.2.7".parse().unwrap()));
        assert!(!names.below_leads_to("index.example", "192.0.2.7".parse().unwrap()));
    }

    #[test]
    fn questions_without_servers_fail_at_once() {
        let hosts = vec![("db.example".to_string(), "10.0.0.1".parse().unwrap())];
        let mut names = Resolver::new(Vec::new(), hosts, &["index.example"], Own::default());
        assert!(names.next_deadline().is_none());
        let client = Client { socket: 1, server: "10.0.0.53:53".parse().unwrap() };
        let mut ask = |name| {
            let question = Question::for_addresses(name, false);
            Answer::parse(&names.ask(question.clone(), client).unwrap(), 0, &question).unwrap()
        };
        assert_eq!(ask("index.example").code, SERVFAIL);
        assert_eq!(ask("db.example").addresses[0].0, "10.0.0.1".parse::<IpAddr>().unwrap());
    }
}
