use super::restore::{check_tree, user_registers};
use super::*;
use crate::life::Life;

fn node(tgid: i32, parent: i32, children: &[i32]) -> NodeState {
    NodeState {
        tgid,
        parent,
        parent_tid: parent,
        children: children.to_vec(),
        pgid: tgid,
        sid: tgid,
        exit_signal: libc::SIGCHLD,
        life: Life::Running,
        report: None,
        leader: None,
        leader_group: None,
    }
}

#[test]
fn only_trees_are_taken() {
    let sound = [node(1, 0, &[2, 3]), node(2, 1, &[4]), node(3, 1, &[]), node(4, 2, &[])];
    assert_eq!(check_tree(&sound), Ok(()));
    let refused = |nodes: &[NodeState]| assert!(check_tree(nodes).is_err(), "{nodes:?}");
    refused(&[node(1, 0, &[]), node(1, 0, &[])]);
    refused(&[node(1, 9, &[])]);
    refused(&[node(1, 0, &[2])]);
    refused(&[node(1, 0, &[2]), node(2, 0, &[])]);
    // Each is known to its parent, and no init is above them.
    refused(&[node(1, 0, &[]), node(2, 3, &[3]), node(3, 2, &[2])]);
    refused(&[node(2, 2, &[2])]);
}

#[test]
fn registers_are_those_of_user_code() {
    let regs = Regs { eflags: u64::MAX, rip: 7, ..Regs::default() };
    let eflags = user_registers(regs).eflags;
    // No I/O privilege, no nested task, no virtual mode.
    assert_eq!((eflags & 0x2_7000, eflags & 0x202), (0, 0x202));
    assert_eq!(user_registers(regs).rip, 7);
}
