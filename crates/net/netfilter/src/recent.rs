//! Lists of addresses that were seen lately, by name: the match recent (iptables-extensions(8)).
//!
//! Lock order: the names, then a list. Lists, addresses and moments are bounded by the constants.

use account::{Account, Charge};
use ktime::Ktime;
use lock_order::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Lists of a namespace.
const LISTS: usize = 256;

/// Addresses that a list holds; the one that was seen longest ago gives way (`ip_list_tot`).
const ADDRESSES: usize = 100;

/// Moments that are kept of an address.
const MOMENTS: usize = 255;

/// What an address takes in the end.
const ADDRESS: usize = 2 * size_of::<(IpAddr, RecentAddress)>() + (MOMENTS + 1) * size_of::<Ktime>();

/// A list.
#[derive(Debug)]
pub struct Recent {
    seen: Mutex<BTreeMap<IpAddr, RecentAddress>>,
    account: Arc<Account>,
}

#[derive(Debug)]
struct RecentAddress {
    _charge: Charge,
    ttl: u8,
    /// Oldest first.
    at: VecDeque<Ktime>,
}

/// A list as plain data, for a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListState {
    /// Its name.
    pub name: String,
    /// Addresses, each with the TTL and the moments, oldest first.
    pub addresses: Vec<(IpAddr, u8, Vec<Ktime>)>,
}

/// What is asked of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Adds the address, or another moment of it.
    Set,
    /// Whether it was seen.
    Check,
    /// The same, and adds a moment if so.
    Update,
    /// Takes the address away.
    Remove,
}

/// How an address must have been seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// In that many last seconds; 0 for ever.
    pub seconds: u32,
    /// That often; 0 for once.
    pub hits: u32,
    /// With this TTL.
    pub ttl: Option<u8>,
}

impl Recent {
    /// Asks about an address that a packet with a TTL comes from. True when the address was found as asked, or is set;
    /// one that there is no memory for is not set.
    pub fn ask(&self, ask: Ask, ip: IpAddr, ttl: u8, how: &How, now: Ktime) -> bool {
        let mut all = self.seen.lock();
        let known = all.get(&ip).is_some_and(|seen| how.ttl.is_none_or(|ttl| ttl == seen.ttl));
        let found = match ask {
            Ask::Set => true,
            Ask::Remove => known,
            Ask::Check | Ask::Update => known && all.get(&ip).is_some_and(|seen| seen.fits(how, now)),
        };
        match ask {
            Ask::Remove if found => {
                all.remove(&ip);
            }
            Ask::Set | Ask::Update if found => {
                if !all.contains_key(&ip) && all.len() >= ADDRESSES {
                    let oldest =
                        all.iter().min_by_key(|(_, seen)| seen.at.back().copied()).map(|(ip, _)| *ip);
                    oldest.map(|oldest| all.remove(&oldest));
                }
                let seen = match all.entry(ip) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(place) => {
                        let Ok(charge) = self.account.take(ADDRESS) else { return false };
                        place.insert(RecentAddress { _charge: charge, ttl, at: VecDeque::new() })
                    }
                };
                seen.ttl = ttl;
                if seen.at.len() >= MOMENTS {
                    seen.at.pop_front();
                }
                seen.at.push_back(now);
            }
            _ => {}
        }
        found
    }
}

impl RecentAddress {
    fn fits(&self, how: &How, now: Ktime) -> bool {
        let limit = Duration::from_secs(how.seconds.into());
        let late = self.at.iter().filter(|at| how.seconds == 0 || now.since(**at) <= limit).count();
        late >= how.hits.max(1) as usize
    }
}

/// The lists of a namespace; each lives while a rule names it.
#[derive(Debug, Default)]
pub struct Lists {
    all: Mutex<BTreeMap<String, Weak<Recent>>>,
    account: Arc<Account>,
}

impl Lists {
    /// No lists; their addresses will count for an account.
    pub(crate) fn new(account: Arc<Account>) -> Lists {
        Lists { all: Mutex::default(), account }
    }

    /// The lists that have addresses.
    pub fn saved(&self) -> Vec<ListState> {
        let all: Vec<_> = {
            let all = self.all.lock();
            all.iter().filter_map(|(name, list)| Some((name.clone(), list.upgrade()?))).collect()
        };
        let states = all.into_iter().map(|(name, list)| {
            let seen = list.seen.lock();
            let state =
                |(ip, one): (&IpAddr, &RecentAddress)| (*ip, one.ttl, one.at.iter().copied().collect());
            ListState { name, addresses: seen.iter().map(state).collect() }
        });
        states.filter(|list| !list.addresses.is_empty()).collect()
    }

    /// Fills the list of that name, which a rule must have. `false` when none has it, or it holds too much.
    pub fn restore(&self, saved: &ListState) -> bool {
        let list = self.all.lock().get(&saved.name).and_then(Weak::upgrade);
        let Some(list) = list else { return false };
        let mut seen = list.seen.lock();
        for (ip, ttl, at) in &saved.addresses {
            if at.is_empty() || at.len() > MOMENTS || seen.len() >= ADDRESSES {
                return false;
            }
            let Ok(charge) = self.account.take(ADDRESS) else { return false };
            seen.insert(*ip, RecentAddress { _charge: charge, ttl: *ttl, at: at.iter().copied().collect() });
        }
        true
    }

    /// The list of that name; `None` when there are too many.
    pub fn get(&self, name: &str) -> Option<Arc<Recent>> {
        let mut all = self.all.lock();
        if let Some(list) = all.get(name).and_then(Weak::upgrade) {
            return Some(list);
        }
        all.retain(|_, list| list.upgrade().is_some());
        if all.len() >= LISTS {
            return None;
        }
        let list = Arc::new(Recent { seen: Mutex::default(), account: self.account.clone() });
        all.insert(name.to_owned(), Arc::downgrade(&list));
        Some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_bounded() {
        let lists = Lists::default();
        let all: Vec<_> = (0..LISTS).map(|i| lists.get(&i.to_string()).unwrap()).collect();
        assert!(lists.get("more").is_none() && lists.get("7").is_some());
        drop(all);
        assert!(lists.get("more").is_some());
    }

    #[test]
    fn lists_are_saved() {
        let (lists, moment) = (Lists::default(), Ktime::from_millis(7));
        let (list, empty) = (lists.get("a").unwrap(), lists.get("b").unwrap());
        list.ask(Ask::Set, "10.0.0.1".parse().unwrap(), 64, &How::default(), moment);
        let saved = lists.saved();
        assert_eq!(saved.len(), 1);
        assert_eq!(saved[0].addresses[0].2, [moment]);
        drop((list, empty));
        assert!(!lists.restore(&saved[0]), "no rule names it");
        let list = lists.get("a").unwrap();
        assert!(lists.restore(&saved[0]));
        assert_eq!(lists.saved(), saved);
        let with = |addresses| ListState { name: "a".into(), addresses };
        let ip: IpAddr = "10.0.0.2".parse().unwrap();
        assert!(!lists.restore(&with(vec![(ip, 1, Vec::new())])));
        assert!(!lists.restore(&with(vec![(ip, 1, vec![moment; MOMENTS + 1])])));
        let many = (0..=ADDRESSES).map(|n| ([10, 1, 0, n as u8].into(), 1, vec![moment])).collect();
        assert!(!lists.restore(&with(many)));
        assert!(list.seen.lock().len() <= ADDRESSES);
    }

    #[test]
    fn addresses_are_remembered_for_a_time() {
        let (lists, at) = (Lists::default(), |seconds: u64| Ktime::from_millis(seconds * 1000));
        let (list, ip) = (lists.get("a").unwrap(), "10.0.0.1".parse().unwrap());
        let how = How { seconds: 10, hits: 2, ttl: None };
        assert!(!list.ask(Ask::Check, ip, 64, &how, at(1)));
        assert!(list.ask(Ask::Set, ip, 64, &How::default(), at(1)));
        assert!(!lists.get("a").unwrap().ask(Ask::Update, ip, 64, &how, at(2)));
        assert!(list.ask(Ask::Set, ip, 64, &How::default(), at(3)));
        assert!(list.ask(Ask::Update, ip, 64, &how, at(11)) && !list.ask(Ask::Check, ip, 64, &how, at(22)));
        assert!(!list.ask(Ask::Check, ip, 64, &How { ttl: Some(9), ..How::default() }, at(4)));
        for n in 0..200_u8 {
            list.ask(Ask::Set, [10, 1, 0, n].into(), 64, &How::default(), at(100 + u64::from(n)));
        }
        assert_eq!(list.seen.lock().len(), ADDRESSES);
        assert!(!list.ask(Ask::Remove, ip, 64, &how, at(400)), "it gave way");
        assert_eq!(lists.account.used(), ADDRESSES * ADDRESS);
        lists.account.set_limit(ADDRESSES * ADDRESS);
        let other = lists.get("b").unwrap();
        assert!(!other.ask(Ask::Set, ip, 64, &How::default(), at(500)), "there is no memory for it");
        drop((list, other));
        assert_eq!(lists.account.used(), 0);
    }
}
