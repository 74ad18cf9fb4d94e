//! ptrace.
