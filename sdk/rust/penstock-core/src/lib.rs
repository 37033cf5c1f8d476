//! The engine and the stores of Penstock. No Python in here.

pub mod arena;
pub mod checksum;
pub mod codec;
pub mod digest;
pub mod engine;
pub mod errors;
pub mod id;
pub mod lanes;
pub mod members;
pub mod order;
pub mod plan;
pub mod process;
pub mod retry;
pub mod state;
pub mod stats;
pub mod store;

#[cfg(test)]
mod soak;
