//! Namespaces as plain data, for a checkpoint: each once, by its inode number, and the sets of tasks by these numbers.
//!
//! Those that a container begins with are made from its specification. A [`SetState`] names them, so that they are found again.
//! [`SpaceSaver`] collects the others, with their owners and those around them, [`Spaces`] makes them again. What a network or
//! mount namespace has is kept elsewhere; here is its owner.

use crate::{CgroupNamespace, Inums, Ipc, Namespace, NsProxy, Offsets, TimeNamespace, Uts, UtsNamespace};
use abi::Errno;
use cgroup::Cgroup;
use pid::PidNamespace;
use serde::{Deserialize, Serialize};
use socket::NetNamespace;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use user_ns::{INITIAL, Kind, MAPPED, NamespaceCount, UserNamespace, UserNamespaceState};

/// The namespaces of a task, by their inode numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields of NsProxy")]
pub struct SetState {
    pub uts: u64,
    pub ipc: u64,
    pub net: u64,
    pub pid_for_children: u64,
    pub cgroup: u64,
    pub time: u64,
    pub time_for_children: u64,
}

impl SetState {
    /// The numbers of a set.
    pub fn of(set: &NsProxy) -> SetState {
        SetState {
            uts: set.uts.inum,
            ipc: set.ipc.inum,
            net: set.net.inum,
            pid_for_children: set.pid_for_children.inum(),
            cgroup: set.cgroup.inum,
            time: set.time.inum,
            time_for_children: set.time_for_children.inum,
        }
    }
}

/// What all kinds of namespaces have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceState {
    /// Number of its nsfs inode.
    pub inum: u64,
    /// That of the user namespace that owns it.
    pub owner: u64,
    /// The user that it counts for.
    pub counted_for: Option<u32>,
}

/// A UTS namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UtsNsState {
    /// What all kinds have.
    pub space: SpaceState,
    /// Host and domain name, and how often they were set.
    pub names: (String, String, u64),
}

/// An IPC namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpcNsState {
    /// What all kinds have.
    pub space: SpaceState,
    /// User and group of the directory of message queues.
    pub owner: (u32, u32),
}

/// A PID namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidNsState {
    /// What all kinds have.
    pub space: SpaceState,
    /// The namespace around it.
    pub parent: u64,
    /// The number given out last.
    pub last: i32,
    /// kernel.pid_max.
    pub max: i32,
    /// Its init has ended.
    pub closed: bool,
}

/// A cgroup namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupNsState {
    /// What all kinds have.
    pub space: SpaceState,
    /// The number of its root ([`Cgroup::id`]).
    pub root: u64,
}

/// A time namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeNsState {
    /// What all kinds have.
    pub space: SpaceState,
    /// Offsets of its clocks.
    pub offsets: Offsets,
    /// A task has entered it.
    pub frozen: bool,
}

/// The namespaces of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpacesState {
    /// Those that containers, by index, began with.
    pub given: Vec<(u32, SetState)>,
    /// User namespaces, each after the one around it.
    pub users: Vec<UserNamespaceState>,
    /// UTS namespaces.
    pub uts: Vec<UtsNsState>,
    /// IPC namespaces.
    pub ipc: Vec<IpcNsState>,
    /// PID namespaces, each after the one around it.
    pub pids: Vec<PidNsState>,
    /// Network namespaces.
    pub nets: Vec<SpaceState>,
    /// Cgroup namespaces.
    pub cgroups: Vec<CgroupNsState>,
    /// Time namespaces.
    pub times: Vec<TimeNsState>,
}

impl SpacesState {
    /// The numbers of those that are made again. An error for one that is there twice.
    fn numbers(&self) -> Result<BTreeSet<u64>, String> {
        let spaces = self.uts.iter().map(|ns| ns.space.inum);
        let spaces = spaces.chain(self.ipc.iter().map(|ns| ns.space.inum));
        let spaces = spaces.chain(self.pids.iter().map(|ns| ns.space.inum));
        let spaces = spaces.chain(self.nets.iter().map(|ns| ns.inum));
        let spaces = spaces.chain(self.cgroups.iter().map(|ns| ns.space.inum));
        let spaces = spaces.chain(self.times.iter().map(|ns| ns.space.inum));
        let mut all = BTreeSet::new();
        for inum in self.users.iter().map(|ns| ns.inum).chain(spaces) {
            if !all.insert(inum) {
                return Err(format!("namespace {inum} is there twice"));
            }
        }
        Ok(all)
    }
}

/// Collects the namespaces of a sandbox.
#[derive(Default)]
pub struct SpaceSaver {
    given: Vec<(u32, SetState)>,
    /// The numbers of those that are given.
    known: BTreeSet<u64>,
    users: BTreeMap<u64, Arc<UserNamespace>>,
    uts: BTreeMap<u64, Arc<UtsNamespace>>,
    ipc: BTreeMap<u64, Arc<Ipc>>,
    pids: BTreeMap<u64, Arc<PidNamespace>>,
    nets: BTreeMap<u64, Arc<NetNamespace>>,
    cgroups: BTreeMap<u64, Arc<CgroupNamespace>>,
    times: BTreeMap<u64, Arc<TimeNamespace>>,
}

impl SpaceSaver {
    /// Notes what a container began with. All containers come first.
    pub fn given(&mut self, container: u32, set: &NsProxy) {
        let state = SetState::of(set);
        self.given.push((container, state));
        let mut level = Some(&set.pid_for_children);
        while let Some(ns) = level {
            self.known.insert(ns.inum());
            level = ns.parent();
        }
        let SetState { uts, ipc, net, pid_for_children: _, cgroup, time, time_for_children } = state;
        self.known.extend([uts, ipc, net, cgroup, time, time_for_children]);
    }

    /// Notes the namespaces of a task; gives their numbers.
    pub fn set(&mut self, set: &NsProxy) -> SetState {
        let spaces = [
            Namespace::Uts(set.uts.clone()),
            Namespace::Ipc(set.ipc.clone()),
            Namespace::Net(set.net.clone()),
            Namespace::Pid(set.pid_for_children.clone()),
            Namespace::Cgroup(set.cgroup.clone()),
            Namespace::Time(set.time.clone()),
            Namespace::Time(set.time_for_children.clone()),
        ];
        spaces.iter().for_each(|ns| _ = self.note(ns));
        SetState::of(set)
    }

    /// Notes a namespace, its owner and those around it; gives its number.
    pub fn note(&mut self, ns: &Namespace) -> u64 {
        let inum = ns.inum();
        if let Namespace::User(ns) = ns {
            let mut at = Some(ns);
            while let Some(ns) = at.filter(|ns| !ns.is_initial()) {
                self.users.insert(ns.inum(), ns.clone());
                at = ns.parent();
            }
            return inum;
        }
        self.note(&Namespace::User(ns.user_ns().clone()));
        if self.known.contains(&inum) {
            return inum;
        }
        match ns {
            Namespace::Cgroup(ns) => _ = self.cgroups.insert(inum, ns.clone()),
            Namespace::Ipc(ns) => _ = self.ipc.insert(inum, ns.clone()),
            Namespace::Net(ns) => _ = self.nets.insert(inum, ns.clone()),
            Namespace::Pid(ns) => {
                self.pids.insert(inum, ns.clone());
                if let Some(parent) = ns.parent() {
                    self.note(&Namespace::Pid(parent.clone()));
                }
            }
            Namespace::Time(ns) => _ = self.times.insert(inum, ns.clone()),
            Namespace::Uts(ns) => _ = self.uts.insert(inum, ns.clone()),
            // Mounts are kept with files.
            Namespace::Mount(_) | Namespace::User(_) => {}
        }
        inum
    }

    /// Whether this is the number of a user namespace that was noted.
    pub fn has_user(&self, inum: u64) -> bool {
        self.users.contains_key(&inum)
    }

    /// The IPC namespaces that were noted.
    pub fn ipc(&self) -> impl Iterator<Item = &Arc<Ipc>> {
        self.ipc.values()
    }

    /// The network namespaces that were noted.
    pub fn nets(&self) -> impl Iterator<Item = &Arc<NetNamespace>> {
        self.nets.values()
    }

    /// The cgroup namespaces that were noted.
    pub fn cgroups(&self) -> impl Iterator<Item = &Arc<CgroupNamespace>> {
        self.cgroups.values()
    }

    /// All as plain data.
    pub fn finish(&self) -> SpacesState {
        let space = |inum: &u64, owner: &UserNamespace, counted_for| SpaceState {
            inum: *inum,
            owner: owner.inum(),
            counted_for,
        };
        let uts = self.uts.iter().map(|(inum, ns)| {
            let names = ns.names();
            let names = (names.nodename, names.domainname, names.version);
            UtsNsState { space: space(inum, ns.user_ns(), ns.counted_for()), names }
        });
        let ipc = self.ipc.iter().map(|(inum, ns)| IpcNsState {
            space: space(inum, ns.user_ns(), ns.counted_for()),
            owner: ns.mqueue.owner(),
        });
        let mut pids: Vec<_> = self.pids.iter().collect();
        pids.sort_by_key(|(inum, ns)| (ns.level(), **inum));
        let pids = pids.into_iter().map(|(inum, ns)| PidNsState {
            space: space(inum, ns.user_ns(), ns.counted_for()),
            parent: ns.parent().map_or(0, |parent| parent.inum()),
            last: ns.last(),
            max: ns.max(),
            closed: ns.is_closed(),
        });
        let nets = self.nets.iter().map(|(inum, ns)| space(inum, ns.user_ns(), ns.counted_for()));
        let cgroups = self.cgroups.iter().map(|(inum, ns)| CgroupNsState {
            space: space(inum, ns.user_ns(), ns.counted_for()),
            root: ns.root.id(),
        });
        let times = self.times.iter().map(|(inum, ns)| TimeNsState {
            space: space(inum, ns.user_ns(), ns.counted_for()),
            offsets: ns.offsets(),
            frozen: ns.is_frozen(),
        });
        // A namespace has a greater number than the one around it.
        SpacesState {
            given: self.given.clone(),
            users: self.users.values().filter_map(|ns| ns.state()).collect(),
            uts: uts.collect(),
            ipc: ipc.collect(),
            pids: pids.collect(),
            nets: nets.collect(),
            cgroups: cgroups.collect(),
            times: times.collect(),
        }
    }
}

/// What namespaces are made again with.
pub struct Tools<'a> {
    /// The initial user namespace.
    pub user_ns: &'a Arc<UserNamespace>,
    /// Gives numbers.
    pub inums: &'a Inums,
    /// Where file systems get their numbers.
    pub devices: &'a caller::DeviceNumbers,
    /// The namespaces that a container, by index, begins with.
    pub given: &'a dyn Fn(u32) -> Option<Arc<NsProxy>>,
    /// The control group that had this number.
    pub group: &'a dyn Fn(u64) -> Option<Arc<Cgroup>>,
}

/// Namespaces by the inode numbers of before.
#[derive(Default)]
pub struct Spaces {
    users: HashMap<u64, Arc<UserNamespace>>,
    uts: HashMap<u64, Arc<UtsNamespace>>,
    ipc: HashMap<u64, Arc<Ipc>>,
    pids: HashMap<u64, Arc<PidNamespace>>,
    nets: HashMap<u64, Arc<NetNamespace>>,
    cgroups: HashMap<u64, Arc<CgroupNamespace>>,
    times: HashMap<u64, Arc<TimeNamespace>>,
}

fn missing(kind: &str, inum: u64) -> String {
    format!("{kind} namespace {inum} is not there")
}

impl Spaces {
    /// Makes namespaces again. The error is a sentence for the user.
    pub fn restore(saved: &SpacesState, tools: &Tools<'_>) -> Result<Spaces, String> {
        let mut all = Spaces::default();
        for inum in [INITIAL, MAPPED] {
            all.users.insert(inum, tools.user_ns.clone());
        }
        for (container, state) in &saved.given {
            let set = (tools.given)(*container)
                .ok_or_else(|| format!("the image has a container {container}, and there is none"))?;
            all.give(state, &set)?;
        }
        let first = (tools.given)(0).ok_or("the first container is not there")?;
        if saved.given.is_empty() {
            all.give(&SetState::of(&first), &first)?;
        }
        let numbers = saved.numbers()?;
        let kept = tools.inums.keep(&numbers);
        let new = |inum: u64| kept.get(&inum).copied().unwrap_or(inum);
        for one in &saved.users {
            let parent = all.user(one.parent).ok_or_else(|| missing("user", one.parent))?;
            let ns = parent.restore(one, new(one.inum)).map_err(|error| failed("user", one.inum, error))?;
            all.users.insert(one.inum, ns);
        }
        for one in &saved.uts {
            let (owner, counted) = all.owned(&one.space, "uts", Kind::Uts)?;
            let (nodename, domainname, version) = one.names.clone();
            if nodename.len() > 64 || domainname.len() > 64 {
                return Err("the host name is too long".into());
            }
            let names = Uts { version, ..Uts::new(nodename, domainname) };
            all.uts.insert(one.space.inum, UtsNamespace::new(new(one.space.inum), owner, names, counted));
        }
        for one in &saved.ipc {
            let (owner, counted) = all.owned(&one.space, "ipc", Kind::Ipc)?;
            let ns = first.ipc.another(new(one.space.inum), &owner, (tools.devices, one.owner), counted);
            all.ipc.insert(one.space.inum, ns);
        }
        for one in &saved.pids {
            let (owner, counted) = all.owned(&one.space, "pid", Kind::Pid)?;
            let parent = all.pid(one.parent).ok_or_else(|| missing("pid", one.parent))?;
            let ns = parent.child(new(one.space.inum), owner, counted);
            let ns = ns.map_err(|error| failed("pid", one.space.inum, error))?;
            all.pids.insert(one.space.inum, ns);
        }
        for one in &saved.nets {
            let (owner, counted) = all.owned(one, "net", Kind::Net)?;
            let ns =
                first.net.another(new(one.inum), owner, counted.ok_or_else(|| missing("net", one.inum))?);
            all.nets.insert(one.inum, ns);
        }
        for one in &saved.cgroups {
            let (owner, counted) = all.owned(&one.space, "cgroup", Kind::Cgroup)?;
            let root = (tools.group)(one.root)
                .ok_or_else(|| format!("the root of cgroup namespace {} is not there", one.space.inum))?;
            let ns = CgroupNamespace::new(new(one.space.inum), owner, root, counted);
            all.cgroups.insert(one.space.inum, ns);
        }
        for one in &saved.times {
            let (owner, counted) = all.owned(&one.space, "time", Kind::Time)?;
            let sound = |ts: &abi::time::Timespec| (0..1_000_000_000).contains(&ts.nsec);
            if ![one.offsets.monotonic, one.offsets.boottime].iter().all(sound) {
                return Err(failed("time", one.space.inum, Errno::EINVAL));
            }
            let ns = TimeNamespace::new(new(one.space.inum), owner, one.offsets, counted);
            if one.frozen {
                ns.freeze();
            }
            all.times.insert(one.space.inum, ns);
        }
        for one in &saved.users {
            if let Some(ns) = all.users.get(&one.inum) {
                ns.restore_limits(one);
            }
        }
        Ok(all)
    }

    /// What a container begins with, by the numbers that its namespaces had. An error when containers shared one that they do
    /// not share now, or the other way round.
    fn give(&mut self, state: &SetState, set: &NsProxy) -> Result<(), String> {
        give(&mut self.uts, state.uts, &set.uts, "uts")?;
        give(&mut self.ipc, state.ipc, &set.ipc, "ipc")?;
        give(&mut self.nets, state.net, &set.net, "net")?;
        give(&mut self.pids, state.pid_for_children, &set.pid_for_children, "pid")?;
        self.cgroups.insert(state.cgroup, set.cgroup.clone());
        self.times.insert(state.time_for_children, set.time_for_children.clone());
        self.times.insert(state.time, set.time.clone());
        Ok(())
    }

    /// The owner of a namespace, and what counts it.
    fn owned(
        &self,
        space: &SpaceState,
        name: &str,
        kind: Kind,
    ) -> Result<(Arc<UserNamespace>, Option<NamespaceCount>), String> {
        let owner = self.user(space.owner).ok_or_else(|| missing("user", space.owner))?;
        let counted = space.counted_for.map(|user| NamespaceCount::new(&owner, user, kind)).transpose();
        Ok((owner, counted.map_err(|error| failed(name, space.inum, error))?))
    }

    /// The user namespace that had this number. 0 stands for the initial one.
    pub fn user(&self, inum: u64) -> Option<Arc<UserNamespace>> {
        self.users.get(if inum == 0 { &INITIAL } else { &inum }).cloned()
    }

    /// The PID namespace that had this number.
    pub fn pid(&self, inum: u64) -> Option<Arc<PidNamespace>> {
        self.pids.get(&inum).cloned()
    }

    /// The network namespace that had this number.
    pub fn net(&self, inum: u64) -> Option<Arc<NetNamespace>> {
        self.nets.get(&inum).cloned()
    }

    /// The IPC namespace that had this number.
    pub fn ipc(&self, inum: u64) -> Option<Arc<Ipc>> {
        self.ipc.get(&inum).cloned()
    }

    /// The cgroup namespace that had this number.
    pub fn cgroup(&self, inum: u64) -> Option<Arc<CgroupNamespace>> {
        self.cgroups.get(&inum).cloned()
    }

    /// The namespace of another kind than mounts that had this number.
    pub fn namespace(&self, inum: u64) -> Option<Namespace> {
        let users = || self.users.get(&inum).cloned().map(Namespace::User);
        let uts = || self.uts.get(&inum).cloned().map(Namespace::Uts);
        let ipc = || self.ipc.get(&inum).cloned().map(Namespace::Ipc);
        let pids = || self.pids.get(&inum).cloned().map(Namespace::Pid);
        let nets = || self.nets.get(&inum).cloned().map(Namespace::Net);
        let cgroups = || self.cgroups.get(&inum).cloned().map(Namespace::Cgroup);
        let times = || self.times.get(&inum).cloned().map(Namespace::Time);
        users().or_else(uts).or_else(ipc).or_else(pids).or_else(nets).or_else(cgroups).or_else(times)
    }

    /// The set of a task. The error is a sentence for the user.
    pub fn set(&self, state: &SetState) -> Result<NsProxy, String> {
        let time = |inum: u64| self.times.get(&inum).cloned().ok_or_else(|| missing("time", inum));
        Ok(NsProxy {
            uts: self.uts.get(&state.uts).cloned().ok_or_else(|| missing("uts", state.uts))?,
            ipc: self.ipc(state.ipc).ok_or_else(|| missing("ipc", state.ipc))?,
            net: self.net(state.net).ok_or_else(|| missing("net", state.net))?,
            pid_for_children: self
                .pid(state.pid_for_children)
                .ok_or_else(|| missing("pid", state.pid_for_children))?,
            cgroup: self.cgroup(state.cgroup).ok_or_else(|| missing("cgroup", state.cgroup))?,
            time: time(state.time)?,
            time_for_children: time(state.time_for_children)?,
        })
    }

    /// Puts into force what keeps PID namespaces from giving numbers, when all processes are there.
    pub fn settle(&self, saved: &SpacesState) {
        for one in &saved.pids {
            let Some(ns) = self.pids.get(&one.space.inum) else { continue };
            ns.set_max(one.max);
            ns.set_last(one.last);
            if one.closed {
                ns.close();
            }
        }
    }
}

/// Notes a namespace that a container begins with.
fn give<T>(known: &mut HashMap<u64, Arc<T>>, inum: u64, ns: &Arc<T>, kind: &str) -> Result<(), String> {
    let same = |(number, one): (&u64, &Arc<T>)| (*number == inum) == Arc::ptr_eq(one, ns);
    if !known.iter().all(same) {
        return Err(format!("the containers do not share {kind} namespaces as those of the image did"));
    }
    known.insert(inum, ns.clone());
    Ok(())
}

fn failed(kind: &str, inum: u64, error: Errno) -> String {
    format!("{kind} namespace {inum}: {error:?}")
}

#[cfg(test)]
mod tests;
