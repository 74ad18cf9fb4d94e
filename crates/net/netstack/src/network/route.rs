//! Route tables and rules (ip-route(8), ip-rule(8)).
//!
//! Pure: a [`Key`] goes in, a [`Route`] comes out. The stack holds one [`Routes`] under a read-write lock; sockets keep the result
//! with the stack's route generation, so steady traffic does not come here. Checkpoint: [`Routes`] is plain data.

use super::change::How;
use crate::addr::{Prefix, Scope};
use crate::device::iface::LOOPBACK;
use abi::Errno;
use ktime::Ktime;
use std::net::IpAddr;

/// The table of local and broadcast addresses.
pub const TABLE_LOCAL: u32 = 255;
/// The table that routes go into.
pub const TABLE_MAIN: u32 = 254;
/// The table that is asked last.
pub const TABLE_DEFAULT: u32 = 253;

/// Routes and rules that a stack may have.
const MAX_ROUTES: usize = 100_000;

/// What a route does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum RouteKind {
    /// Sends them out.
    Unicast,
    /// Delivers them to this host.
    Local,
    /// Sends them as link broadcast, and delivers those received.
    Broadcast,
    /// Drops them; senders get `EINVAL`.
    Blackhole,
    /// Refuses them with `EHOSTUNREACH`.
    Unreachable,
    /// Refuses them with `EACCES`.
    Prohibit,
    /// Continues with the next rule.
    Throw,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Route {
    /// Table.
    pub table: u32,
    /// Destinations.
    pub dst: Prefix,
    /// What happens.
    pub kind: RouteKind,
    /// Interface, 0 for none.
    pub iface: u32,
    /// Next hop, if it is not the destination.
    pub gateway: Option<IpAddr>,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// The lowest metric wins among equal prefixes.
    pub metric: u32,
    /// Scope of the destinations.
    pub scope: Scope,
    /// The source of the route (`RTPROT_`).
    pub protocol: u8,
    /// MTU, if it is less than the interface's.
    pub mtu: Option<u32>,
    /// Type of service that packets must have, 0 for any.
    pub tos: u8,
    /// The next hop is on the interface's link whatever the routes say (`RTNH_F_ONLINK`).
    pub onlink: bool,
    /// The gateway is an address of this host, so destinations are on the link (Linux: a next hop of host scope).
    pub own_gateway: bool,
    /// When it is removed by itself.
    pub expires: Option<Ktime>,
    /// A router told of it (RFC 4861).
    pub by_router: bool,
    /// How many parts of the flows take the interface and gateway above, when there are other hops; at least 1.
    pub weight: u16,
    /// Further next hops (`RTA_MULTIPATH`).
    pub others: Vec<Hop>,
}

/// A next hop of a route that has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Hop {
    /// Interface.
    pub iface: u32,
    /// Next hop, if it is not the destination.
    pub gateway: Option<IpAddr>,
    /// How many parts of the flows take it.
    pub weight: u16,
    /// As [`Route::onlink`].
    pub onlink: bool,
    /// As [`Route::own_gateway`].
    pub own_gateway: bool,
}

impl Hop {
    /// The address that packets are sent to on the link; `None` for their destination.
    pub(crate) fn next(&self) -> Option<IpAddr> {
        self.gateway.filter(|_| !self.own_gateway)
    }
}

impl Route {
    /// A unicast route of the main table.
    pub fn new(dst: Prefix, iface: u32, gateway: Option<IpAddr>) -> Route {
        Route {
            table: TABLE_MAIN,
            dst: Prefix { addr: dst.network(), len: dst.len },
            kind: RouteKind::Unicast,
            iface,
            gateway,
            source: None,
            metric: 0,
            scope: if gateway.is_some() { Scope::Global } else { Scope::Link },
            protocol: 3,
            mtu: None,
            tos: 0,
            onlink: false,
            own_gateway: false,
            expires: None,
            by_router: false,
            weight: 1,
            others: Vec::new(),
        }
    }

    /// All next hops.
    pub fn hops(&self) -> impl Iterator<Item = Hop> {
        let first = Hop {
            iface: self.iface,
            gateway: self.gateway,
            weight: self.weight,
            onlink: self.onlink,
            own_gateway: self.own_gateway,
        };
        std::iter::once(first).chain(self.others.iter().copied())
    }

    /// True when packets leave by an interface.
    pub fn uses(&self, iface: u32) -> bool {
        self.iface == iface || self.others.iter().any(|hop| hop.iface == iface)
    }
}

/// The hop that a flow takes: each gets its part of the numbers that `hash` can be.
pub(crate) fn choose(hops: &[Hop], hash: u32) -> Option<&Hop> {
    let total: u64 = hops.iter().map(|hop| u64::from(hop.weight)).sum();
    let mut left = (u64::from(hash) * total) >> 32;
    hops.iter().find(|hop| {
        let weight = u64::from(hop.weight);
        let here = left < weight;
        left = left.saturating_sub(weight);
        here
    })
}

/// What a rule does with a packet that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Action {
    /// Looks into a table.
    Table(u32),
    /// As the route of this kind.
    Refuse(RouteKind),
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rule {
    /// Order; lower is earlier.
    pub priority: u32,
    /// Family: true for IPv4.
    pub v4: bool,
    /// Source addresses.
    pub from: Option<Prefix>,
    /// Destination addresses.
    pub to: Option<Prefix>,
    /// Receiving interface, 0 for any.
    pub iif: u32,
    /// Interface that the socket is bound to, 0 for any.
    pub oif: u32,
    /// Names of both interfaces, empty for any. While no interface has the name, the rule applies to nothing.
    pub names: [String; 2],
    /// Mark and mask.
    pub mark: Option<(u32, u32)>,
    /// Type of service.
    pub tos: Option<u8>,
    /// What happens.
    pub action: Action,
    /// Applies to packets that the rest does not describe.
    pub invert: bool,
    /// Routes of prefixes up to this length are not taken from the table.
    pub suppress: Option<u8>,
    /// The source of the rule (`RTPROT_`).
    pub protocol: u8,
}

/// What a lookup is about.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Destination.
    pub dst: IpAddr,
    /// Source, if it is known.
    pub src: Option<IpAddr>,
    /// Receiving interface, 0 for packets of this host.
    pub iif: u32,
    /// Interface that the packet must leave by, 0 for any.
    pub oif: u32,
    /// Mark.
    pub mark: u32,
    /// Type of service.
    pub tos: u8,
}

impl Key {
    /// A lookup by destination alone.
    pub fn to(dst: IpAddr) -> Key {
        Key { dst, src: None, iif: 0, oif: 0, mark: 0, tos: 0 }
    }
}

/// The bits of the type of service that routes look at (`IPTOS_RT_MASK`).
const TOS: u8 = 0x1c;

/// A route or a rule, as a change names it.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A route.
    Route(Route),
    /// A rule.
    Rule(Rule),
}

/// A change of a route or a rule, for the monitor.
#[derive(Clone, Debug)]
pub(crate) struct RouteChange {
    pub(crate) entry: Entry,
    pub(crate) how: How,
}

/// All tables and rules of a stack.
#[derive(Clone, Debug)]
pub struct Routes {
    /// Longest prefix first, then lowest metric, then oldest.
    routes: Vec<Route>,
    /// By priority.
    rules: Vec<Rule>,
    /// What has changed since [`Routes::take_changes`].
    changes: Vec<RouteChange>,
}

impl Default for Routes {
    fn default() -> Self {
        let rule = |priority, v4, table| Rule {
            priority,
            v4,
            from: None,
            to: None,
            iif: 0,
            oif: 0,
            names: Default::default(),
            mark: None,
            tos: None,
            action: Action::Table(table),
            invert: false,
            suppress: None,
            protocol: 2,
        };
        let family = |v4| {
            [(0, TABLE_LOCAL), (32766, TABLE_MAIN), (32767, TABLE_DEFAULT)]
                .map(|(priority, table)| rule(priority, v4, table))
        };
        // IPv6 has no default table.
        let rules = family(true).into_iter().chain(family(false).into_iter().take(2)).collect();
        Routes { routes: Vec::new(), rules, changes: Vec::new() }
    }
}

impl Routes {
    /// All routes.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// All rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Adds a route; `EEXIST` when one with its table, destination, metric and next hop is there.
    pub fn add(&mut self, route: Route) -> Result<(), Errno> {
        let v4 = route.dst.addr.is_ipv4();
        if self.routes.iter().any(|old| same(old, &route) && (v4 || old.gateway == route.gateway)) {
            return Err(Errno::EEXIST);
        }
        if !self.has_room(&route) {
            return Err(Errno::ENOBUFS);
        }
        self.insert(route, false);
        Ok(())
    }

    /// Room for one more route with its hops.
    fn has_room(&self, route: &Route) -> bool {
        self.routes.len() < MAX_ROUTES && self.has_room_for_hops(route)
    }

    /// Whether a route may take the place of another, as far as its next hops go.
    pub fn has_room_for_hops(&self, route: &Route) -> bool {
        let known: usize = self.routes.iter().map(|old| old.others.len()).sum();
        route.others.is_empty() || known + route.others.len() < MAX_ROUTES
    }

    fn insert(&mut self, route: Route, first: bool) {
        let order = |r: &Route| (std::cmp::Reverse(r.dst.len), r.metric);
        let before =
            |old: &Route| if first { order(old) < order(&route) } else { order(old) <= order(&route) };
        let place = self.routes.partition_point(before);
        self.note(How::Set, Entry::Route(route.clone()));
        self.routes.insert(place, route);
    }

    /// Adds a route beside those of its destination: in front of routes with the same metric, or behind. `EEXIST` when the same
    /// route is there.
    pub fn add_beside(&mut self, route: Route, first: bool) -> Result<(), Errno> {
        if self.routes.contains(&route) {
            return Err(Errno::EEXIST);
        }
        if !self.has_room(&route) {
            return Err(Errno::ENOBUFS);
        }
        self.insert(route, first);
        Ok(())
    }

    /// Takes an interface out of use that goes down: routes that lead nowhere else go. As in Linux, nothing is told of IPv4 routes,
    /// and the other hops of a route stay.
    pub(crate) fn forget_link(&mut self, index: u32) {
        self.forget_link_but(index, |_| false);
    }

    /// The same, but for the routes that `stay`.
    pub(crate) fn forget_link_but(&mut self, index: u32, stay: impl Fn(&Route) -> bool) {
        self.forget(|route| route.hops().all(|hop| hop.iface == index) && !stay(route));
    }

    /// Puts a route in the place of the first that `matches`; false when there is none.
    pub fn replace(&mut self, route: &Route, matches: impl Fn(&Route) -> bool) -> bool {
        let Some(old) = self.routes.iter_mut().find(|old| matches(old)) else { return false };
        *old = route.clone();
        self.note(How::Replaced, Entry::Route(route.clone()));
        true
    }

    /// Gives the first route that `matches` another end; false when there is none. The change is not announced.
    pub(crate) fn prolong(&mut self, matches: impl Fn(&Route) -> bool, expires: Option<Ktime>) -> bool {
        let Some(old) = self.routes.iter_mut().find(|old| matches(old)) else { return false };
        old.expires = expires;
        true
    }

    /// Removes the first route that `matches`; `ESRCH` when there is none.
    pub fn remove(&mut self, matches: impl Fn(&Route) -> bool) -> Result<Route, Errno> {
        let place = self.routes.iter().position(matches).ok_or(Errno::ESRCH)?;
        let route = self.routes.remove(place);
        self.note(How::Gone, Entry::Route(route.clone()));
        Ok(route)
    }

    /// Removes all routes that match.
    pub fn purge(&mut self, matches: impl Fn(&Route) -> bool) {
        for gone in self.routes.extract_if(.., |route| matches(route)) {
            self.changes.push(RouteChange { entry: Entry::Route(gone), how: How::Gone });
        }
    }

    /// The same for routes with an interface that goes down. As in Linux, nothing is told of IPv4 routes.
    pub fn forget(&mut self, matches: impl Fn(&Route) -> bool) {
        self.routes.retain(|route| !(route.dst.addr.is_ipv4() && matches(route)));
        self.purge(matches);
    }

    fn note(&mut self, how: How, entry: Entry) {
        self.changes.push(RouteChange { entry, how });
    }

    /// The changes since the last call, oldest first.
    pub(crate) fn take_changes(&mut self) -> Vec<RouteChange> {
        std::mem::take(&mut self.changes)
    }

    /// Adds a rule.
    pub fn add_rule(&mut self, rule: Rule) -> Result<(), Errno> {
        if self.rules.contains(&rule) {
            return Err(Errno::EEXIST);
        }
        if self.rules.len() >= MAX_ROUTES {
            return Err(Errno::ENOBUFS);
        }
        let place = self.rules.partition_point(|old| old.priority <= rule.priority);
        self.note(How::Set, Entry::Rule(rule.clone()));
        self.rules.insert(place, rule);
        Ok(())
    }

    /// Takes the rules of a restored stack in their order.
    pub(crate) fn set_rules(&mut self, rules: Vec<Rule>) -> Result<(), Errno> {
        if rules.len() > MAX_ROUTES {
            return Err(Errno::ENOBUFS);
        }
        self.rules = rules;
        Ok(())
    }

    /// Removes the first rule that matches; `ENOENT` when there is none.
    pub fn remove_rule(&mut self, matches: impl Fn(&Rule) -> bool) -> Result<Rule, Errno> {
        let place = self.rules.iter().position(matches).ok_or(Errno::ENOENT)?;
        let rule = self.rules.remove(place);
        self.note(How::Gone, Entry::Rule(rule.clone()));
        Ok(rule)
    }

    /// An interface has this name and index from now on; index 0: none has the name.
    pub(crate) fn attach_rules(&mut self, name: &str, index: u32) {
        for rule in &mut self.rules {
            if rule.names[0] == name {
                rule.iif = index;
            }
            if rule.names[1] == name {
                rule.oif = index;
            }
        }
    }

    /// The route of a packet. Interfaces that `usable` refuses are skipped.
    pub fn lookup(&self, key: &Key, usable: impl Fn(u32) -> bool) -> Result<&Route, Errno> {
        for rule in self.rules.iter().filter(|rule| applies(rule, key)) {
            match rule.action {
                // A rule's refusal differs from a route's.
                Action::Refuse(RouteKind::Unreachable) => return Err(Errno::ENETUNREACH),
                Action::Refuse(kind) => return Err(refusal(kind)),
                Action::Table(table) => match self.in_table(table, key, &usable) {
                    Some(route) if route.kind == RouteKind::Throw => {}
                    Some(route) if rule.suppress.is_some_and(|longest| route.dst.len <= longest) => {}
                    Some(route) => return if refuses(route) { Err(refusal(route.kind)) } else { Ok(route) },
                    None => {}
                },
            }
        }
        Err(Errno::ENETUNREACH)
    }

    /// The route by which a gateway of IPv4 is reached, by an interface unless that is 0: one of no wider scope than `scope`, in
    /// `table`, where the route to be added goes, unless that is the main table, or else where the rules lead.
    pub fn towards(&self, gateway: IpAddr, iface: u32, scope: Scope, table: u32) -> Option<&Route> {
        let leads = |route: &&Route| {
            route.dst.contains(gateway)
                && route.scope <= scope
                && (iface == 0 || route.uses(iface))
                && !refuses(route)
                && route.kind != RouteKind::Throw
        };
        let key = Key::to(gateway);
        let by_rules =
            self.rules.iter().filter(|rule| applies(rule, &key)).filter_map(|rule| match rule.action {
                Action::Table(table) => Some(table),
                Action::Refuse(_) => None,
            });
        let tables = Some(table).filter(|table| *table != TABLE_MAIN).into_iter().chain(by_rules);
        let of_table = |table| self.routes.iter().filter(move |route| route.table == table);
        tables.into_iter().find_map(|table| of_table(table).find(leads))
    }

    fn in_table(&self, table: u32, key: &Key, usable: impl Fn(u32) -> bool) -> Option<&Route> {
        self.routes.iter().find(|route| {
            route.table == table
                && route.dst.contains(key.dst)
                && (route.tos == 0 || route.tos == key.tos & TOS)
                && (refuses(route)
                    || route.kind == RouteKind::Throw
                    || (usable(route.iface) && leaves_by(route, key.oif)))
        })
    }
}

/// A socket that is bound to an interface still reaches local addresses of others through the loopback device.
fn leaves_by(route: &Route, oif: u32) -> bool {
    oif == 0 || route.uses(oif) || (route.kind == RouteKind::Local && oif == 1)
}

fn same(a: &Route, b: &Route) -> bool {
    (a.table, a.dst, a.metric, a.kind) == (b.table, b.dst, b.metric, b.kind)
        && (a.table != TABLE_LOCAL || a.iface == b.iface)
}

fn refuses(route: &Route) -> bool {
    matches!(route.kind, RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit)
}

fn refusal(kind: RouteKind) -> Errno {
    match kind {
        RouteKind::Blackhole => Errno::EINVAL,
        RouteKind::Unreachable => Errno::EHOSTUNREACH,
        RouteKind::Prohibit => Errno::EACCES,
        _ => Errno::ENETUNREACH,
    }
}

fn applies(rule: &Rule, key: &Key) -> bool {
    let source = |prefix: Prefix| match key.src {
        Some(src) => prefix.contains(src),
        None => prefix.len == 0,
    };
    // Packets of this host come from the loopback interface.
    let input = if key.iif == 0 { LOOPBACK } else { key.iif };
    let detached = |name: &String, index: u32| index == 0 && !name.is_empty();
    if detached(&rule.names[0], rule.iif) || detached(&rule.names[1], rule.oif) {
        return false;
    }
    let described = rule.from.is_none_or(source)
        && rule.to.is_none_or(|prefix| prefix.contains(key.dst))
        && (rule.iif == 0 || rule.iif == input)
        && (rule.oif == 0 || rule.oif == key.oif)
        && rule.mark.is_none_or(|(mark, mask)| key.mark & mask == mark & mask)
        && rule.tos.is_none_or(|tos| tos == key.tos);
    rule.v4 == key.dst.is_ipv4() && described != rule.invert
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (addr, len) = text.split_once('/').unwrap();
        Prefix::new(addr.parse().unwrap(), len.parse().unwrap())
    }

    fn found(routes: &Routes, key: Key) -> Result<u32, Errno> {
        routes.lookup(&key, |iface| iface != 9).map(|route| route.iface)
    }

    #[test]
    fn flows_spread_over_hops_by_weight() {
        let hop = |iface, weight| Hop { iface, gateway: None, weight, onlink: false, own_gateway: false };
        let hops = [hop(1, 1), hop(2, 3), hop(3, 256)];
        assert_eq!(choose(&[], 7), None);
        let mut counts = [0; 3];
        for n in 0..2600u64 {
            let hash = ((n << 32) / 2600) as u32;
            counts[choose(&hops, hash).unwrap().iface as usize - 1] += 1;
        }
        let near = |count: i32, part: i32| (count - part).abs() <= 1;
        assert!(near(counts[0], 10) && near(counts[1], 30) && near(counts[2], 2560), "{counts:?}");
        assert_eq!(choose(&hops, u32::MAX).unwrap().iface, 3);
    }

    #[test]
    fn a_route_stays_while_one_hop_does() {
        let mut routes = Routes::default();
        let others = vec![Hop { iface: 3, gateway: None, weight: 1, onlink: false, own_gateway: false }];
        routes.add(Route { others, ..Route::new(prefix("10.0.0.0/8"), 2, None) }).unwrap();
        routes.forget_link(2);
        assert_eq!(routes.routes().len(), 1);
        let key = Key { oif: 3, ..Key::to("10.1.2.3".parse().unwrap()) };
        assert!(routes.lookup(&key, |_| true).is_ok());
        routes.add(Route::new(prefix("11.0.0.0/8"), 2, None)).unwrap();
        routes.forget_link(2);
        assert_eq!(routes.routes().len(), 1);
    }

    #[test]
    fn longest_prefix_and_lowest_metric_win() {
        let mut routes = Routes::default();
        let key = Key::to("10.1.2.3".parse().unwrap());
        assert_eq!(found(&routes, key), Err(Errno::ENETUNREACH));
        routes.add(Route::new(prefix("0.0.0.0/0"), 2, Some("10.0.0.1".parse().unwrap()))).unwrap();
        routes.add(Route { metric: 5, ..Route::new(prefix("10.1.0.0/16"), 4, None) }).unwrap();
        routes.add(Route::new(prefix("10.1.0.0/16"), 3, None)).unwrap();
        routes.add(Route::new(prefix("10.1.2.0/24"), 9, None)).unwrap();
        assert_eq!(routes.add(Route::new(prefix("10.1.0.0/16"), 7, None)), Err(Errno::EEXIST));
        assert_eq!(found(&routes, key), Ok(3));
        assert_eq!(found(&routes, Key { oif: 4, ..key }), Ok(4));
        assert_eq!(found(&routes, Key::to("8.8.8.8".parse().unwrap())), Ok(2));
        assert_eq!(found(&routes, Key::to("2001::1".parse().unwrap())), Err(Errno::ENETUNREACH));
        routes.purge(|route| route.iface == 3);
        assert_eq!(found(&routes, key), Ok(4));
    }

    #[test]
    fn rules_choose_tables() {
        let mut routes = Routes::default();
        routes.add(Route::new(prefix("0.0.0.0/0"), 2, None)).unwrap();
        routes.add(Route { table: 100, ..Route::new(prefix("0.0.0.0/0"), 5, None) }).unwrap();
        let rule = Rule { priority: 10, mark: Some((7, 0xff)), ..routes.rules()[2].clone() };
        routes.add_rule(Rule { action: Action::Table(100), ..rule.clone() }).unwrap();
        let from = Some(prefix("10.0.0.0/8"));
        routes
            .add_rule(Rule { from, mark: None, action: Action::Refuse(RouteKind::Prohibit), ..rule })
            .unwrap();
        let key = Key::to("1.1.1.1".parse().unwrap());
        assert_eq!(found(&routes, key), Ok(2));
        assert_eq!(found(&routes, Key { mark: 0x107, ..key }), Ok(5));
        assert_eq!(found(&routes, Key { src: Some("10.2.3.4".parse().unwrap()), ..key }), Err(Errno::EACCES));
    }
}
