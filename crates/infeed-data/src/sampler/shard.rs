//! Which part of a job a process has.
#![forbid(unsafe_code)]

use std::fmt;

use infeed_core::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// This process among all processes of a job. Default: rank 0 of 1, a job of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct Shard {
    rank: u32,
    world: u32,
    local_rank: u32,
    local_world: u32,
}

impl Default for Shard {
    fn default() -> Self {
        Self { rank: 0, world: 1, local_rank: 0, local_world: 1 }
    }
}

impl Shard {
    /// Rank `rank` of `world`, the only process on its machine.
    ///
    /// # Errors
    /// `Config` if the rank is not below the world size.
    pub fn new(rank: u32, world: u32) -> Result<Self> {
        if world == 0 {
            return Err(Error::config("world size is 0").with_hint("use the number of processes, 1 or more"));
        }
        if rank >= world {
            return Err(Error::config(format!("rank {rank} is not below the world size {world}"))
                .with_hint(format!("use a rank from 0 to {}", world - 1)));
        }
        Ok(Self { rank, world, local_rank: 0, local_world: 1 })
    }

    /// Sets which process of its machine this is. Processes of one machine share its cache and memory.
    ///
    /// # Errors
    /// `Config` if the local rank is not below the local world size, or if that is above the world size.
    pub fn with_local(self, local_rank: u32, local_world: u32) -> Result<Self> {
        if local_rank >= local_world {
            return Err(Error::config(format!(
                "local rank {local_rank} is not below the local world size {local_world}"
            ))
            .with_hint("count the processes of one machine from 0"));
        }
        if local_world > self.world {
            let world = self.world;
            return Err(Error::config(format!("local world size {local_world} is above the world size {world}"))
                .with_hint("the world size counts the processes of all machines"));
        }
        Ok(Self { local_rank, local_world, ..self })
    }

    /// The shard of device `n` of this process's `of` devices, as if each device had its own process. Its rank is
    /// `rank * of + n`. All other processes have to have `of` devices as well.
    #[doc(hidden)]
    pub fn of_device(self, n: u32, of: u32) -> Result<Self> {
        let number = |process: u32, n: u32| process.checked_mul(of).and_then(|before| before.checked_add(n));
        let numbers = [(self.rank, n), (self.world, 0), (self.local_rank, n), (self.local_world, 0)];
        let [Some(rank), Some(world), Some(local_rank), Some(local_world)] =
            numbers.map(|(process, n)| number(process, n))
        else {
            let what = format!("{of} devices in each of {} processes are more than 2^32 - 1 ranks", self.world);
            return Err(Error::config(what));
        };
        Self::new(rank, world)?.with_local(local_rank, local_world)
    }

    /// Rank: the number of this process in the job.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// World size: the number of processes in the job, 1 or more.
    #[must_use]
    pub const fn world(&self) -> u32 {
        self.world
    }

    /// Local rank: the number of this process on its machine.
    #[must_use]
    pub const fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// Local world size: the number of processes on this machine, at least `local_rank + 1`. It is `local_rank + 1` if
    /// the launcher gives only the local rank.
    #[must_use]
    pub const fn local_world(&self) -> u32 {
        self.local_world
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.world)
    }
}

/// The serde form, checked when it is read.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    rank: u32,
    world: u32,
    #[serde(default)]
    local_rank: u32,
    #[serde(default = "one")]
    local_world: u32,
}

const fn one() -> u32 {
    1
}

impl From<Shard> for Fields {
    fn from(Shard { rank, world, local_rank, local_world }: Shard) -> Self {
        Self { rank, world, local_rank, local_world }
    }
}

impl TryFrom<Fields> for Shard {
    type Error = Error;

    fn try_from(fields: Fields) -> Result<Self> {
        Self::new(fields.rank, fields.world)?.with_local(fields.local_rank, fields.local_world)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_cannot_be_is_refused_wherever_it_comes_from() {
        assert_eq!(
            Shard::new(8, 8).unwrap_err().to_string(),
            "config: rank 8 is not below the world size 8; use a rank from 0 to 7"
        );
        assert!(Shard::new(0, 0).is_err());
        assert!(Shard::new(1, 4).unwrap().with_local(2, 2).is_err());
        assert!(Shard::new(1, 4).unwrap().with_local(2, 5).is_err());
        assert!(serde_json::from_str::<Shard>(r#"{"rank":4,"world":4}"#).is_err());
        let shard = Shard::new(3, 8).unwrap().with_local(1, 2).unwrap();
        assert_eq!(serde_json::from_str::<Shard>(&serde_json::to_string(&shard).unwrap()).unwrap(), shard);
    }
}
