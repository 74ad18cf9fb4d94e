//! ranked.
