//! hostsys.
