//! Files and file systems: the rows of the table; see `families` for how to add one.

#[allow(unused_imports)]
use crate::arg::{DirFd, Fd, PathPtr, Ptr};
#[allow(unused_imports)]
use crate::table::Support::{Absent, Full, Partial};
use crate::table::{Row, rows};

rows! {}
