//! Tests of connections without a stack.
mod pair;
mod script;
mod simulate;
