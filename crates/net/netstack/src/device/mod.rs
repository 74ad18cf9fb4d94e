//! The device layer: interfaces, the graph of those that stand upon each other, and the queue that frames are forwarded by.
//!
//! A frame that arrives is taken up the graph by [`receive`]: a port of a bridge hands it to the bridge, an interface with VLANs to
//! the interface of its tag, step by step and not by nested calls. A frame that is sent goes down by [`transmit`]: what leaves by an
//! interface that stands upon others again waits in the [`inbox`] for its turn. The other end of a veth pair gets its frames by the
//! inbox of its network namespace. [`links`] is the table of a namespace's interfaces, [`packet`] shows frames to packet sockets
//! and to a capture.
//!
//! The layer calls upwards by one narrow trait, [`inbox::UpperLayer`], once for each turn and never for a frame.

pub(crate) mod about;
pub(crate) mod backlog;
pub mod bridge;
pub mod capture;
pub mod driver;
pub mod fanout;
pub mod iface;
pub(crate) mod inbox;
pub(crate) mod links;
pub mod packet;
pub mod queue;
pub(crate) mod receive;
pub(crate) mod transmit;
pub(crate) mod vlan;
