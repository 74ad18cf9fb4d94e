use crate::*;
use abi::Errno;
use std::sync::Arc;

fn tree() -> (Arc<Cgroup>, Arc<Cgroup>) {
    let top = Cgroup::topmost(ktime::Clock::default());
    let root = top.of_container();
    (top, root)
}

fn mkdir(of: &Arc<Cgroup>, name: &str) -> Arc<Cgroup> {
    of.mkdir(name.as_bytes(), (0, 0), 0o755).unwrap()
}

fn task(group: &Arc<Cgroup>) -> Member {
    let member = Member::fork(group).unwrap();
    let mut changes = Changes::default();
    member.join(group, &mut changes).unwrap();
    changes.tell();
    member
}

fn leave(member: &Member) {
    let mut changes = Changes::default();
    drop(member.leave(&mut changes));
    changes.tell();
}

#[test]
fn paths_are_relative_to_a_root() {
    let (top, root) = tree();
    let (a, b) = (mkdir(&root, "a"), mkdir(&root, "b"));
    let c = mkdir(&a, "c");
    assert_eq!(c.path_from(&root), b"/a/c");
    assert_eq!(c.path_from(&c), b"/");
    assert_eq!(b.path_from(&c), b"/../../b");
    assert_eq!(root.path_from(&c), b"/../..");
    assert_eq!(a.path_from(&c), b"/..");
    assert!(c.is_within_id(root.id()) && c.is_within_id(c.id()) && !b.is_within_id(a.id()));
    assert!(c.is_within(&root) && c.is_within(&top) && !b.is_within(&a) && !root.is_within(&a));
    a.rmdir(b"c").unwrap();
    assert_eq!(c.line(&root), b"0::/a/c (deleted)\n");
}

#[test]
fn groups_go_when_they_are_empty() {
    let (_, root) = tree();
    let a = mkdir(&root, "a");
    assert_eq!(root.mkdir(b"a", (0, 0), 0o755).err(), Some(Errno::EEXIST));
    assert_eq!(root.mkdir(b"a\nb", (0, 0), 0o755).err(), Some(Errno::EINVAL));
    let b = mkdir(&a, "b");
    let before = root.events().version();
    let t = task(&b);
    assert!(root.is_populated() && a.is_populated());
    assert_eq!((root.rmdir(b"a"), a.rmdir(b"b")), (Err(Errno::EBUSY), Err(Errno::EBUSY)));
    assert_eq!(root.events().version(), before + 1);
    leave(&t);
    assert!(!root.is_populated() && !b.is_populated());
    assert_eq!(root.rmdir(b"a"), Err(Errno::EBUSY));
    a.rmdir(b"b").unwrap();
    assert_eq!((root.descendants(), b.check_alive()), ((1, 1), Err(Errno::ENODEV)));
    assert!(b.mkdir(b"c", (0, 0), 0o755).is_err());
    drop((b, t));
    assert_eq!((root.descendants(), a.descendants()), ((1, 0), (0, 0)));
}

#[test]
fn limits_on_groups() {
    let (_, root) = tree();
    let a = mkdir(&root, "a");
    a.set_max_depth(Limit(Some(1))).unwrap();
    let b = mkdir(&a, "b");
    assert_eq!(b.mkdir(b"c", (0, 0), 0o755).err(), Some(Errno::EAGAIN));
    root.set_max_descendants(Limit(Some(2))).unwrap();
    assert_eq!(root.mkdir(b"c", (0, 0), 0o755).err(), Some(Errno::EAGAIN));
    a.rmdir(b"b").unwrap();
    mkdir(&root, "c");
    root.set_max_descendants(Limit(None)).unwrap();
    a.set_max_depth(Limit(None)).unwrap();
    let mut at = a.clone();
    let error = loop {
        match at.mkdir(b"x", (0, 0), 0o755) {
            Ok(next) => at = next,
            Err(e) => break e,
        }
    };
    assert_eq!(error, Errno::EAGAIN);
}

#[test]
fn the_pids_limit_holds_for_all_below() {
    let (_, root) = tree();
    let (a, b) = (mkdir(&root, "a"), mkdir(&root, "b"));
    a.set_pids_max(1);
    // Without the controller there is no limit.
    let (t, u) = (task(&a), task(&a));
    assert_eq!(a.set_subtree_control(Controllers::empty(), Controllers::all()), Ok(()));
    root.set_subtree_control(Controllers::PIDS, Controllers::empty()).unwrap();
    assert_eq!(Member::fork(&a).err(), Some(Errno::EAGAIN));
    assert_eq!((a.pids().events, a.pids().events_local, root.pids().events), (1, 1, 1));
    leave(&t);
    leave(&u);
    assert_eq!(a.pids().current, 0);
    let t = task(&a);
    let mut changes = Changes::default();
    // A move is not refused.
    let u = task(&b);
    assert!(u.move_to(&a, &mut changes));
    assert_eq!((a.pids().current, b.pids().current, root.pids().current), (2, 0, 2));
    assert_eq!((a.pids().peak, b.is_populated()), (2, false));
    let waited = t.leave(&mut changes);
    assert_eq!(a.pids().current, 2);
    drop(waited);
    assert_eq!(a.pids().current, 1);
    drop(Member::placed(&a));
    assert_eq!(a.pids().current, 1);
    root.set_subtree_control(Controllers::empty(), Controllers::PIDS).unwrap();
    assert_eq!((a.pids().max, a.pids().events), (u64::MAX, 0));
    changes.tell();
    leave(&u);
}

#[test]
fn controllers_and_processes_part() {
    let (_, root) = tree();
    let a = mkdir(&root, "a");
    let (pids, none) = (Controllers::PIDS, Controllers::empty());
    assert_eq!(a.set_subtree_control(pids, none), Err(Errno::ENOENT));
    let t = task(&root);
    root.set_subtree_control(pids, none).unwrap();
    a.set_subtree_control(pids, none).unwrap();
    assert_eq!(root.set_subtree_control(none, pids), Err(Errno::EBUSY));
    let b = mkdir(&a, "b");
    let u = task(&b);
    assert_eq!(
        (a.check_takes_processes(), root.check_takes_processes()),
        (Err(Errno::EBUSY), Err(Errno::EBUSY))
    );
    a.set_subtree_control(none, pids).unwrap();
    a.check_takes_processes().unwrap();
    root.set_subtree_control(none, pids).unwrap();
    assert_eq!(root.set_subtree_control(pids, none), Err(Errno::EBUSY));
    leave(&t);
    root.set_subtree_control(pids, none).unwrap();
    leave(&u);
    assert_eq!(Controllers::parse("+pids"), Ok((pids, none)));
    assert_eq!(Controllers::parse(" +pids  -pids"), Ok((none, pids)));
    assert!(Controllers::parse("pids").is_err() && Controllers::parse("+none").is_err());
    assert!(Controllers::parse("+").is_err() && Controllers::parse("").is_ok());
}

#[test]
fn frozen_when_all_stand_still() {
    let (_, root) = tree();
    let a = mkdir(&root, "a");
    let b = mkdir(&a, "b");
    let (t, u) = (task(&a), task(&b));
    a.set_freeze(true).unwrap().tell();
    assert!(a.is_freezing() && b.is_freezing() && !root.is_freezing() && !a.is_frozen());
    t.set_frozen(true);
    assert!(!a.is_frozen());
    u.set_frozen(true);
    assert!(a.is_frozen() && b.is_frozen() && !root.is_frozen());
    let mut changes = Changes::default();
    // A task that joins is not frozen yet; one that leaves stands still until it notices.
    let v = task(&root);
    assert!(v.move_to(&b, &mut changes));
    assert!(!a.is_frozen());
    v.set_frozen(true);
    assert!(a.is_frozen());
    assert!(v.move_to(&root, &mut changes));
    v.set_frozen(false);
    changes.tell();
    assert!(a.is_frozen() && mkdir(&a, "c").is_frozen() && a.is_frozen());
    a.rmdir(b"c").unwrap();
    b.set_freeze(true).unwrap().tell();
    a.set_freeze(false).unwrap().tell();
    assert!(!a.is_frozen() && b.is_frozen() && b.is_freezing());
    leave(&u);
    assert!(b.is_frozen());
    b.set_freeze(false).unwrap().tell();
    assert!(!b.is_frozen());
    leave(&t);
    leave(&v);
}

#[test]
fn what_is_being_made_when_its_group_is_killed_never_runs() {
    let (_, root) = tree();
    let a = mkdir(&root, "a");
    let t = Member::fork(&a).unwrap();
    assert_eq!(root.kill().unwrap().len(), 2);
    let mut changes = Changes::default();
    assert_eq!(t.join(&a, &mut changes), Err(Errno::EAGAIN));
    // Its maker is elsewhere by now.
    let u = Member::fork(&a).unwrap();
    u.join(&root, &mut changes).unwrap();
    assert_eq!((a.pids().current, root.pids().current), (1, 2));
    drop(t);
    assert_eq!((a.pids().current, root.pids().current), (0, 1));
    leave(&u);
    changes.tell();
}

#[test]
fn a_closed_container_leaves_nothing() {
    let (top, root) = tree();
    let a = mkdir(&root, "a");
    mkdir(&a, "b");
    drop(a);
    root.close();
    assert_eq!((top.count_children(), top.descendants()), (0, (0, 1)));
    drop(root);
    assert_eq!((top.descendants(), top.count_all()), ((0, 0), 1));
}

fn program(of: &Arc<Programs>, allow: i32) -> Arc<BpfProgram> {
    let code = [(0xb7, allow), (0x95, 0)];
    let code = code.map(|(code, immediate)| ebpf::Instruction { code, immediate, ..Default::default() });
    let program = ebpf::Program::new(ebpf::Kind::CgroupDevice, code.to_vec()).unwrap();
    of.load(program, ProgramInfo::default()).unwrap()
}

#[test]
fn programs_decide_about_devices_until_their_group_goes() {
    let (_, root) = tree();
    let (a, other) = (mkdir(&root, "a"), mkdir(&root, "other"));
    let b = mkdir(&a, "b");
    let programs = Programs::new(&root);
    let (yes, no) = (program(&programs, 1), program(&programs, 0));
    let device = caller::DeviceUse { block: false, number: 1 << 8 | 3, access: 2 };
    let refused = |group: &Arc<Cgroup>| group.check_device(&device) == Err(Errno::EPERM);
    a.attach_program(&no, Attach::ALLOW_MULTI, None).unwrap();
    b.attach_program(&yes, Attach::ALLOW_MULTI, None).unwrap();
    assert!(refused(&a) && refused(&b) && !refused(&other) && !refused(&root));
    a.attach_program(&yes, Attach::ALLOW_MULTI | Attach::REPLACE, Some(&no)).unwrap();
    assert!(!refused(&b));
    // Only the group holds the program, and only as long as the group exists.
    b.attach_program(&no, Attach::ALLOW_MULTI, None).unwrap();
    let id = no.id();
    drop(no);
    assert!(refused(&b) && programs.find(id).is_ok());
    a.rmdir(b"b").unwrap();
    assert_eq!(programs.find(id).err(), Some(Errno::ENOENT));
    assert_eq!((programs.next(0), programs.next(yes.id())), (Ok(yes.id()), Err(Errno::ENOENT)));
    assert_eq!(b.attach_program(&yes, Attach::ALLOW_MULTI, None), Err(Errno::ENOENT));
}

#[test]
fn programs_and_their_places_have_bounds() {
    let (_, root) = tree();
    let programs = Programs::new(&root);
    let others: Vec<_> = (0..4).map(|_| Programs::new(&root)).collect();
    let all: Vec<_> = (0..256).map(|_| program(&programs, 1)).collect();
    let more = all[0].program.clone();
    assert_eq!(programs.load(more.clone(), ProgramInfo::default()).err(), Some(Errno::ENOMEM));
    let of_others: Vec<_> = (0..768).map(|i| program(&others[i / 256], 1)).collect();
    assert_eq!(others[3].load(more.clone(), ProgramInfo::default()).err(), Some(Errno::ENOMEM));
    drop(of_others);
    let groups: Vec<_> = (0..5).map(|i| mkdir(&root, &format!("{i}"))).collect();
    let attach = |group: usize, i: usize| groups[group].attach_program(&all[i], Attach::ALLOW_MULTI, None);
    for i in 0..256 {
        attach(i / MOST_PROGRAMS, i).unwrap();
    }
    assert_eq!((attach(0, 255), attach(4, 0)), (Err(Errno::E2BIG), Err(Errno::ENOMEM)));
    root.rmdir(b"0").unwrap();
    attach(4, 0).unwrap();
    root.close();
    drop(all);
    assert_eq!(programs.next(0), Err(Errno::ENOENT));
    programs.load(more, ProgramInfo::default()).unwrap();
}
