//! Shared by the tests.
#![allow(dead_code, reason = "each promise uses its own part")]

pub(crate) mod store;
