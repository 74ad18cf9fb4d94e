//! Tests of connections without a stack.
mod pair;
mod pieces;
mod script;
mod simulate;
