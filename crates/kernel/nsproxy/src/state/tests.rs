use super::*;
use spec::Interfaces;
use tmpfs::{MemFiles, Memfds};

/// A kernel's namespaces, and what makes more.
struct Bench {
    user_ns: Arc<UserNamespace>,
    inums: Inums,
    devices: caller::DeviceNumbers,
    first: Arc<NsProxy>,
    top: Arc<Cgroup>,
}

impl Bench {
    fn new() -> Bench {
        let user_ns = UserNamespace::initial();
        let memfds = Memfds::new(&MemFiles::new(None));
        let pids = PidNamespace::root(crate::inum::HIDDEN, user_ns.clone());
        let top = Cgroup::topmost(ktime::Clock::starting_at(ktime::Ktime::ZERO)).of_container();
        let time = TimeNamespace::initial(crate::inum::TIME, user_ns.clone());
        let first = NsProxy {
            uts: UtsNamespace::new(crate::inum::UTS, user_ns.clone(), Uts::new("a".into(), "b".into()), None),
            ipc: Ipc::new(crate::inum::IPC, &user_ns, &memfds),
            net: NetNamespace::new(
                crate::inum::NET,
                user_ns.clone(),
                Interfaces::loopback(),
                &Arc::default(),
            ),
            pid_for_children: pids.child(crate::inum::PID, user_ns.clone(), None).unwrap(),
            cgroup: CgroupNamespace::new(crate::inum::CGROUP, user_ns.clone(), top.clone(), None),
            time_for_children: time.clone(),
            time,
        };
        let (inums, devices) = (Inums::default(), caller::DeviceNumbers::default());
        Bench { user_ns, inums, devices, first: Arc::new(first), top }
    }

    fn by<'a>(&'a self, user_ns: &'a Arc<UserNamespace>) -> crate::Making<'a> {
        let (inums, devices) = (&self.inums, &self.devices);
        crate::Making { user_ns, euid: 0, fs_ids: (3, 4), inums, devices, cgroup: self.top.clone() }
    }

    fn restore(&self, saved: &SpacesState) -> Result<Spaces, String> {
        let tools = Tools {
            user_ns: &self.user_ns,
            inums: &self.inums,
            devices: &self.devices,
            given: &|container| (container == 0).then(|| self.first.clone()),
            group: &|id| (id == self.top.id()).then(|| self.top.clone()),
        };
        Spaces::restore(saved, &tools)
    }
}

/// A set of new namespaces in a user namespace, with another PID namespace below, as plain data.
fn saved() -> (SetState, SpacesState) {
    let a = Bench::new();
    let maker = user_ns::Maker { user: 0, group: 0, setfcap: true };
    let owner = a.user_ns.child(a.inums.next(), maker).unwrap();
    let made = Arc::new(a.first.with_new(crate::IN_SET, &a.by(&owner)).unwrap());
    made.uts.rename(|names| names.nodename = "inner".into());
    let offsets = [(libc::CLOCK_MONOTONIC, abi::time::Timespec { sec: 5, nsec: 7 })];
    made.time_for_children.set(&offsets, |_| 1 << 40).unwrap();
    made.pid_for_children.alloc().unwrap();
    let deeper = made.pid_for_children.child(a.inums.next(), owner.clone(), None).unwrap();
    deeper.close();
    let mut saver = SpaceSaver::default();
    saver.given(0, &a.first);
    let set = saver.set(&made);
    saver.note(&Namespace::Pid(deeper));
    (set, saver.finish())
}

#[test]
fn state_and_back() {
    let (set, saved) = saved();
    let b = Bench::new();
    let spaces = b.restore(&saved).unwrap();
    let again = spaces.set(&set).unwrap();
    assert_eq!(SetState::of(&again), set);
    assert_eq!((again.uts.names().nodename, again.uts.names().domainname), ("inner".into(), "b".into()));
    assert_eq!(again.time_for_children.offsets().monotonic.sec, 5);
    assert!(!again.time_for_children.is_frozen() && Arc::ptr_eq(&again.time, &b.first.time));
    assert!(Arc::ptr_eq(again.uts.user_ns(), &spaces.user(saved.users[0].inum).unwrap()));
    spaces.settle(&saved);
    let deeper = spaces.pid(saved.pids[1].space.inum).unwrap();
    assert!(Arc::ptr_eq(deeper.parent().unwrap(), &again.pid_for_children) && deeper.is_closed());
    assert_eq!(again.pid_for_children.last(), 1);
    // What is saved of it is the same, and no new namespace gets a number of these.
    let mut saver = SpaceSaver::default();
    saver.given(0, &b.first);
    saver.set(&again);
    saver.note(&Namespace::Pid(deeper));
    assert_eq!(saver.finish(), saved);
    assert!(saver.finish().numbers().unwrap().iter().all(|inum| *inum < b.inums.next()));
}

#[test]
fn numbers_that_are_taken_become_others() {
    let (set, saved) = saved();
    let b = Bench::new();
    let taken: Vec<u64> = (0..3).map(|_| b.inums.next()).collect();
    let spaces = b.restore(&saved).unwrap();
    let again = SetState::of(&spaces.set(&set).unwrap());
    assert!(![again.uts, again.ipc, again.net, again.cgroup].iter().any(|inum| taken.contains(inum)));
    assert!(again.uts < again.ipc && again.ipc < again.net);
}

#[test]
fn plain_data_that_cannot_be() {
    let (set, saved) = saved();
    let refused = |change: &dyn Fn(&mut SpacesState)| {
        let mut bad = saved.clone();
        change(&mut bad);
        assert!(Bench::new().restore(&bad).is_err(), "{bad:?}");
    };
    refused(&|s| s.given[0].0 = 1);
    refused(&|s| s.users[0].parent = 5);
    refused(&|s| s.users[0].parent = s.users[0].inum);
    refused(&|s| s.users.clear());
    refused(&|s| s.uts[0].space.inum = s.ipc[0].space.inum);
    refused(&|s| s.uts[0].names.0 = "n".repeat(65));
    refused(&|s| s.uts[0].space.owner = 77);
    refused(&|s| s.pids.reverse());
    refused(&|s| s.pids[0].parent = s.pids[0].space.inum);
    refused(&|s| s.cgroups[0].root = 999);
    refused(&|s| s.nets[0].counted_for = None);
    refused(&|s| s.times[0].offsets.boottime.nsec = -1);
    refused(&|s| s.times[0].offsets.boottime.nsec = 1_000_000_000);
    // More than there may be.
    let many = |s: &mut SpacesState| {
        let one = s.nets[0];
        s.nets = (0..300).map(|at| SpaceState { inum: one.inum + 1000 + at, ..one }).collect();
    };
    refused(&many);
    let spaces = Bench::new().restore(&saved).unwrap();
    for bad in [
        SetState { uts: 1, ..set },
        SetState { pid_for_children: set.uts, ..set },
        SetState { time: set.net, ..set },
        SetState::default(),
    ] {
        assert!(spaces.set(&bad).is_err());
    }
    // Any number is one that can be kept or replaced.
    let mut odd = saved.clone();
    odd.uts[0].space.inum = u64::MAX;
    assert!(Bench::new().restore(&odd).is_ok());
}
