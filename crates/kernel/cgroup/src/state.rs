//! Groups as plain data, for a checkpoint: those of a container, each after the one around it.

use crate::controllers::Controllers;
use crate::cpu::{Cpu, CpuMax, CpuStat};
use crate::group::Cgroup;
use crate::limit::Limit;
use crate::member::Charge;
use crate::owner::Owner;
use crate::programs::{Attach, BpfProgram, ProgramInfo, Programs};
use abi::{Errno, Result};
use ebpf::{Instruction, Kind, Program};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What cpu.* say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuState {
    /// The share of the group among its neighbours.
    pub shares: u32,
    /// cpu.idle.
    pub idle: bool,
    /// Quota, period and burst.
    pub max: (Option<Duration>, Duration, Duration),
    /// Periods, and those in which it was throttled or used more than its quota.
    pub periods: [u64; 3],
    /// How long it was throttled, and what it used beyond the quota.
    pub times: [Duration; 2],
}

/// A group as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupState {
    /// Its number.
    pub id: u64,
    /// That of the group around; 0 for the container's.
    pub parent: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// cgroup.max.depth and cgroup.max.descendants.
    pub most: [Option<u32>; 2],
    /// cgroup.subtree_control.
    pub control: u8,
    /// cgroup.freeze.
    pub freeze: bool,
    /// pids.max, pids.peak, and how often the limit refused a task: here or below, and here.
    pub pids: [u64; 4],
    /// What cpu.* say.
    pub cpu: CpuState,
    /// Processor time of what has ended or moved on.
    pub time: [u64; 2],
    /// The owner of files without an entry in `owners`.
    pub maker: Option<Owner>,
    /// Owners of files by name.
    pub owners: Vec<(String, Owner)>,
    /// How programs about devices are attached (BPF_F_*), and which.
    pub devices: (u32, Vec<u32>),
}

/// A program about devices as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramState {
    /// Its number.
    pub id: u32,
    /// What kind it is of.
    pub kind: u32,
    /// Instructions: operation, registers, offset, operand.
    pub code: Vec<(u8, u8, i16, i32)>,
    /// Its name.
    pub name: [u8; 16],
    /// When it was loaded, and the user that did.
    pub loaded: (u64, u32),
    /// Its license is compatible with the GPL.
    pub gpl: bool,
}

/// The groups of a container as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupsState {
    /// Programs about devices.
    pub programs: Vec<ProgramState>,
    /// The groups, the container's own first.
    pub groups: Vec<GroupState>,
}

/// Longest name of a group.
const LONGEST: usize = 255;
/// Numbers of groups are kept below this.
const HIGHEST: u64 = 1 << 40;

impl Cgroup {
    fn group_state(&self, top: bool) -> GroupState {
        let s = self.state();
        let (cpu, stat) = (&s.cpu, &s.cpu.stat);
        GroupState {
            id: self.id(),
            parent: self.parent().filter(|_| !top).map_or(0, |parent| parent.id()),
            name: self.name.clone(),
            most: [s.max_depth.0, s.max_descendants.0],
            control: s.control.bits(),
            freeze: s.freeze,
            pids: [s.pids.max, s.pids.peak, s.pids.events, s.pids.events_local],
            cpu: CpuState {
                shares: cpu.shares,
                idle: cpu.idle,
                max: (cpu.max.quota, cpu.max.period, cpu.max.burst),
                periods: [stat.periods, stat.throttled, stat.bursts],
                times: [stat.throttled_time, stat.burst_time],
            },
            time: s.time,
            maker: Some(s.maker),
            owners: sorted(&s.owners),
            devices: (s.devices.flags.bits(), s.devices.list.iter().map(|program| program.id()).collect()),
        }
    }

    /// The group of a container with all below it as plain data.
    pub fn groups(self: &Arc<Self>) -> GroupsState {
        let mut programs: BTreeMap<u32, ProgramState> = BTreeMap::new();
        let all = self.descend();
        for group in &all {
            let list = group.state().devices.list.clone();
            programs.extend(list.iter().map(|program| (program.id(), program.state())));
        }
        let groups = all.iter().map(|group| group.group_state(Arc::ptr_eq(group, self)));
        GroupsState { programs: programs.into_values().collect(), groups: groups.collect() }
    }

    /// Makes the groups below that of a new container, without tasks; gives all by the numbers that they had. `own`: where
    /// the container's programs about devices are. `name` gives the name of a file of cgroupfs. The limit of the container's own
    /// group is that of its specification. EINVAL, EEXIST, EAGAIN for groups that cannot be.
    pub fn restore_groups(
        self: &Arc<Self>,
        saved: &GroupsState,
        own: &Arc<Programs>,
        name: &dyn Fn(&str) -> Option<&'static str>,
    ) -> Result<HashMap<u64, Arc<Cgroup>>> {
        let mut programs = HashMap::new();
        for program in &saved.programs {
            programs.insert(program.id, program.restore(own)?);
        }
        let mut all: HashMap<u64, Arc<Cgroup>> = HashMap::new();
        for (at, one) in saved.groups.iter().enumerate() {
            let group = if at == 0 {
                self.clone()
            } else {
                let parent = all.get(&one.parent).ok_or(Errno::EINVAL)?;
                if one.name.is_empty() || one.name.len() > LONGEST || one.name.contains(&b'/') {
                    return Err(Errno::EINVAL);
                }
                let last = &self.tree().last_id;
                if one.id < HIGHEST {
                    last.fetch_max(one.id.saturating_sub(1), Ordering::Relaxed);
                }
                parent.mkdir(&one.name, (0, 0), crate::group::DIR_MODE)?
            };
            if all.insert(one.id, group).is_some() {
                return Err(Errno::EEXIST);
            }
        }
        // Limits come when all groups are there, and controllers from the top down.
        for one in &saved.groups {
            let Some(group) = all.get(&one.id) else { continue };
            let control = Controllers::from_bits(one.control).ok_or(Errno::EINVAL)?;
            group.set_subtree_control(control, Controllers::all().difference(control))?;
        }
        for one in &saved.groups {
            let Some(group) = all.get(&one.id) else { continue };
            group.settings(one, Arc::ptr_eq(group, self), name)?;
            let how = Attach::from_bits(one.devices.0).ok_or(Errno::EINVAL)?.difference(Attach::REPLACE);
            for id in &one.devices.1 {
                group.attach_program(programs.get(id).ok_or(Errno::EINVAL)?, how, None)?;
            }
        }
        for one in saved.groups.iter().filter(|one| one.freeze) {
            if let Some(group) = all.get(&one.id) {
                group.set_freeze(true)?.tell();
            }
        }
        Ok(all)
    }

    fn settings(
        &self,
        saved: &GroupState,
        top: bool,
        name: &dyn Fn(&str) -> Option<&'static str>,
    ) -> Result<()> {
        let cpu = &saved.cpu;
        let max = CpuMax { quota: cpu.max.0, period: cpu.max.1, burst: cpu.max.2 };
        max.check()?;
        if !(2..=1 << 18).contains(&cpu.shares) {
            return Err(Errno::EINVAL);
        }
        let mut owners = HashMap::new();
        for (file, owner) in &saved.owners {
            owners.insert(name(file).ok_or(Errno::EINVAL)?, *owner);
        }
        let _tree = self.tree().lock();
        let mut s = self.state();
        [s.max_depth, s.max_descendants] = saved.most.map(Limit);
        let [most, peak, events, events_local] = saved.pids;
        if !top {
            s.pids.max = most;
        }
        s.pids.peak = s.pids.current.max(peak);
        (s.pids.events, s.pids.events_local) = (events, events_local);
        let [periods, throttled, bursts] = cpu.periods;
        let [throttled_time, burst_time] = cpu.times;
        let stat = CpuStat { periods, throttled, throttled_time, bursts, burst_time };
        s.cpu = Cpu { shares: cpu.shares, idle: cpu.idle, max, stat, account: None };
        // So that no sum of groups is out of range.
        s.time = saved.time.map(|time| time.min(1 << 56));
        if let Some(maker) = saved.maker {
            s.maker = maker;
        }
        s.owners.extend(owners);
        Ok(())
    }

    /// What a process that has ended and was not waited for counts as.
    pub fn restored_charge(self: &Arc<Self>) -> Charge {
        let tree = self.tree().lock();
        self.charge();
        drop(tree);
        Charge::of(self)
    }

    /// Whether programs about devices are attached to it that came from elsewhere than from [`Programs`] of its container.
    pub fn programs_here(&self) -> Vec<Arc<BpfProgram>> {
        self.state().devices.list.clone()
    }
}

impl BpfProgram {
    fn state(&self) -> ProgramState {
        let about = &self.about;
        ProgramState {
            id: self.id(),
            kind: self.program.kind().number(),
            code: self
                .program
                .code()
                .iter()
                .map(|one| (one.code, one.registers, one.offset, one.immediate))
                .collect(),
            name: about.name,
            loaded: (about.loaded, about.uid),
            gpl: about.gpl,
        }
    }
}

impl ProgramState {
    fn restore(&self, own: &Arc<Programs>) -> Result<Arc<BpfProgram>> {
        let code = self.code.iter().map(|&(code, registers, offset, immediate)| Instruction {
            code,
            registers,
            offset,
            immediate,
        });
        let kind = Kind::of(self.kind).ok_or(Errno::EINVAL)?;
        let program = Program::new(kind, code.collect()).map_err(|_| Errno::EINVAL)?;
        let (loaded, uid) = self.loaded;
        own.load_as(self.id, program, ProgramInfo { name: self.name, loaded, uid, gpl: self.gpl })
    }
}

/// By name: one state makes one image.
fn sorted(owners: &HashMap<&'static str, Owner>) -> Vec<(String, Owner)> {
    let mut all: Vec<_> = owners.iter().map(|(name, owner)| ((*name).to_owned(), *owner)).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Member;
    use ktime::{Clock, Ktime};

    fn container() -> (Arc<Cgroup>, Arc<Programs>) {
        let top = Cgroup::topmost(Clock::starting_at(Ktime::ZERO)).of_container();
        let programs = Programs::new(&top);
        (top, programs)
    }

    fn name(file: &str) -> Option<&'static str> {
        ["", "cgroup.procs"].into_iter().find(|known| *known == file)
    }

    /// A group with one below it, which has a program and a task.
    fn made() -> (Arc<Cgroup>, Arc<Programs>, Member) {
        let (top, programs) = container();
        top.set_subtree_control(Controllers::all(), Controllers::empty()).unwrap();
        let outer = top.mkdir(b"outer", (1, 2), 0o700).unwrap();
        outer.set_subtree_control(Controllers::PIDS, Controllers::empty()).unwrap();
        let inner = outer.mkdir(b"inner", (0, 0), 0o755).unwrap();
        outer.set_max_depth(Limit(Some(3))).unwrap();
        outer.set_cpu_weight(50).unwrap();
        let max = CpuMax { quota: Some(Duration::from_millis(20)), ..CpuMax::default() };
        outer.set_cpu_max(max).unwrap();
        inner.set_pids_max(9);
        inner.set_freeze(true).unwrap().tell();
        let owner = Owner { mode: 0o600, uid: 5, gid: 6, times: Default::default() };
        inner.set_owner("cgroup.procs", owner);
        // mov r0, 1; exit.
        let code = [(0xb7, 0, 0, 1), (0x95, 0, 0, 0)];
        let state = ProgramState { id: 7, kind: 15, code: code.to_vec(), ..ProgramState::default() };
        let program = state.restore(&programs).unwrap();
        inner.attach_program(&program, Attach::ALLOW_MULTI, None).unwrap();
        let member = Member::placed(&inner);
        (top, programs, member)
    }

    #[test]
    fn state_and_back() {
        let (top, _programs, _member) = made();
        let saved = top.groups();
        let (again, programs) = container();
        let all = again.restore_groups(&saved, &programs, &name).unwrap();
        let inner = &all[&saved.groups[2].id];
        assert_eq!((inner.path_from(&again), inner.pids().max), (b"/outer/inner".to_vec(), 9));
        assert!(inner.is_freezing() && inner.has_device_rules() && inner.owner("cgroup.procs", 0).uid == 5);
        assert!(inner.parent().unwrap().has_cpu_quota() && inner.parent().unwrap().cpu_weight() == 50);
        assert!(Arc::ptr_eq(&programs.find(7).unwrap(), &inner.programs_here()[0]));
        let mut now = again.groups();
        // The name of a container's own group says nothing.
        now.groups[0].name.clone_from(&saved.groups[0].name);
        assert_eq!(now, saved);
    }

    #[test]
    fn plain_data_that_cannot_be() {
        let (top, _programs, _member) = made();
        let saved = top.groups();
        let refused = |change: &dyn Fn(&mut GroupsState)| {
            let mut bad = saved.clone();
            change(&mut bad);
            let (again, programs) = container();
            assert!(again.restore_groups(&bad, &programs, &name).is_err(), "{bad:?}");
        };
        refused(&|s| s.groups[2].parent = 77);
        refused(&|s| s.groups[2].id = s.groups[1].id);
        refused(&|s| s.groups[2].id = s.groups[0].id);
        refused(&|s| s.groups[1].name = b"a/b".to_vec());
        refused(&|s| s.groups[1].name = b"a\nb".to_vec());
        refused(&|s| s.groups[1].name = vec![b'a'; 256]);
        refused(&|s| s.groups[1].name.clear());
        refused(&|s| s.groups[0].control = 0);
        refused(&|s| s.groups[0].control = 0xff);
        refused(&|s| s.groups[1].cpu.shares = 0);
        refused(&|s| s.groups[1].cpu.max.1 = Duration::ZERO);
        refused(&|s| s.groups[1].owners.push(("other".into(), saved.groups[1].maker.unwrap())));
        refused(&|s| s.groups[2].devices.1.push(99));
        refused(&|s| s.groups[2].devices.0 = 3);
        refused(&|s| s.programs[0].code.truncate(1));
        refused(&|s| s.programs[0].kind = 0);
        refused(&|s| s.programs.push(s.programs[0].clone()));
        let many = |s: &mut GroupsState| {
            let one = s.groups[2].clone();
            let deep = (0..200).map(|at| GroupState {
                id: 1000 + at,
                parent: if at == 0 { one.id } else { 999 + at },
                ..one.clone()
            });
            s.groups[1].most = [None; 2];
            s.groups.extend(deep);
        };
        refused(&many);
        // Any number is one that can be kept or replaced.
        let mut odd = saved.clone();
        odd.groups[2].id = u64::MAX;
        odd.groups[2].time = [u64::MAX; 2];
        let (again, programs) = container();
        assert!(again.restore_groups(&odd, &programs, &name).is_ok());
        assert!(again.past_time()[0] > 0);
    }
}
