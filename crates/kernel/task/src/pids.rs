//! Process ids in pid namespaces.
//!
//! Every container of a sandbox has a pid namespace or shares another one's; none is inside another. The kernel's own
//! tables hold *ids*, which are unique in the sandbox: the namespace's index in the upper bits, the *number* that its
//! tasks know in the lower ones. Namespace 0 is the first container's, whose ids are its numbers. Numbers are made into
//! ids where they come in ([`id`]) and ids into numbers where they go out ([`number`], or [`seen`] when the id may be of
//! another namespace).

/// Highest process id plus one (kernel.pid_max).
pub const PID_MAX: i32 = 1 << BITS;
/// Most namespaces of a sandbox.
pub const NAMESPACES: u32 = 1 << (31 - BITS);

const BITS: u32 = 22;

/// What the task with this id, or its namespace's tasks, call it. 0 and negative values are nobody's and stay.
pub fn number(id: i32) -> i32 {
    if id < 0 { id } else { id & (PID_MAX - 1) }
}

/// The namespace that an id belongs to.
pub fn namespace(id: i32) -> u32 {
    if id < 0 { 0 } else { id as u32 >> BITS }
}

/// The id of a number in a namespace. A number that none can have gives an id that none has.
pub fn id(namespace: u32, number: i32) -> i32 {
    if number > 0 && number < PID_MAX { (namespace << BITS) as i32 | number } else { i32::MIN }
}

/// What the tasks of a namespace call this id: 0 for one of another namespace.
pub fn seen(from: u32, id: i32) -> i32 {
    if id > 0 && namespace(id) != from { 0 } else { number(id) }
}

/// The id of a namespace's init.
pub fn init(namespace: u32) -> i32 {
    id(namespace, 1)
}

/// Whether this is the id of an init.
pub fn is_init(id: i32) -> bool {
    number(id) == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_numbers() {
        assert_eq!(id(0, 7), 7);
        assert_eq!(number(id(511, PID_MAX - 1)), PID_MAX - 1);
        assert_eq!(namespace(id(511, 1)), 511);
        assert!(id(511, PID_MAX - 1) > 0);
        for none in [0, -1, PID_MAX, i32::MAX, i32::MIN] {
            assert!(id(3, none) < 0);
        }
        assert_eq!((seen(3, id(3, 9)), seen(2, id(3, 9)), seen(3, 0), seen(3, -1)), (9, 0, 0, -1));
        assert!(is_init(init(5)) && !is_init(0) && !is_init(2));
    }
}
