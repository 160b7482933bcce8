//! Which part of a job this process is, and how to find out from the launcher.
#![forbid(unsafe_code)]

use std::{env, fmt};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// This process among all processes of a job. The default is rank 0 of 1: a job of its own.
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
    /// Rank `rank` of `world`, alone on its machine.
    ///
    /// # Errors
    /// `Config` when the rank is not below the world size.
    pub fn new(rank: u32, world: u32) -> Result<Self> {
        if world == 0 {
            return Err(Error::config("world size is 0").hint("use the number of processes, 1 or more"));
        }
        if rank >= world {
            return Err(Error::config(format!("rank {rank} is not below the world size {world}"))
                .hint(format!("use a rank from 0 to {}", world - 1)));
        }
        Ok(Self { rank, world, local_rank: 0, local_world: 1 })
    }

    /// Says which process of its machine this is: processes of one machine share its cache and memory.
    ///
    /// # Errors
    /// `Config` when the local rank is not below the local world size, or that one is above the world size.
    pub fn with_local(self, local_rank: u32, local_world: u32) -> Result<Self> {
        if local_rank >= local_world {
            return Err(Error::config(format!(
                "local rank {local_rank} is not below the local world size {local_world}"
            ))
            .hint("count the processes of one machine from 0"));
        }
        if local_world > self.world {
            let world = self.world;
            return Err(Error::config(format!("local world size {local_world} is above the world size {world}"))
                .hint("the world size counts the processes of all machines"));
        }
        Ok(Self { local_rank, local_world, ..self })
    }

    /// The share of device `n` of the `of` that this process has, as if each of them had a process of its own: rank
    /// `rank * of + n`. The other processes have as many.
    pub(crate) fn of_device(self, n: u32, of: u32) -> Result<Self> {
        let number = |process: u32, n: u32| process.checked_mul(of).and_then(|before| before.checked_add(n));
        let numbers = [(self.rank, n), (self.world, 0), (self.local_rank, n), (self.local_world, 0)];
        let [Some(rank), Some(world), Some(local_rank), Some(local_world)] =
            numbers.map(|(process, n)| number(process, n))
        else {
            let what =
                format!("{of} devices in each of {} processes are more ranks than there are numbers", self.world);
            return Err(Error::config(what));
        };
        Self::new(rank, world)?.with_local(local_rank, local_world)
    }

    /// Number of this process in the job.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of processes in the job, 1 or more.
    #[must_use]
    pub const fn world(&self) -> u32 {
        self.world
    }

    /// Number of this process on its machine.
    #[must_use]
    pub const fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// Number of processes on this machine: at least `local_rank + 1`, which is what stands here when a launcher tells
    /// only the local rank.
    #[must_use]
    pub const fn local_world(&self) -> u32 {
        self.local_world
    }

    /// Asks the launcher, through the process's environment variables; rank 0 of 1 when there is none. The log (level
    /// info) says which launcher was found.
    ///
    /// The first complete pair wins, inner launchers before outer ones:
    ///
    /// | launcher | rank | world size | on this machine |
    /// |---|---|---|---|
    /// | torchrun and all that follow it | `RANK` | `WORLD_SIZE` | `LOCAL_RANK`, `LOCAL_WORLD_SIZE` |
    /// | Lightning | `GLOBAL_RANK` | `WORLD_SIZE`, else `NNODES` × `LOCAL_WORLD_SIZE` | `LOCAL_RANK`, `LOCAL_WORLD_SIZE` |
    /// | Open MPI | `OMPI_COMM_WORLD_RANK` | `…_SIZE` | `…_LOCAL_RANK`, `…_LOCAL_SIZE` |
    /// | MPICH, Intel MPI | `PMI_RANK` | `PMI_SIZE` | `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` |
    /// | MVAPICH | `MV2_COMM_WORLD_RANK` | `…_SIZE` | `…_LOCAL_RANK`, `…_LOCAL_SIZE` |
    /// | PMIx | `PMIX_RANK` | `WORLD_SIZE` | |
    /// | Slurm, inside `srun` only | `SLURM_PROCID` | `SLURM_NTASKS` | `SLURM_LOCALID`, `SLURM_NTASKS_PER_NODE` |
    /// | SageMaker | place of `SM_CURRENT_HOST` in `SM_HOSTS` | hosts in `SM_HOSTS` | |
    /// | Kubernetes indexed job | `JOB_COMPLETION_INDEX` | `WORLD_SIZE` | |
    ///
    /// # Errors
    /// `Config` for a value that can't be, with the variable's name.
    pub fn from_env() -> Result<Self> {
        // A value that is not Unicode must be told, not overlooked.
        let found = find(&|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))?;
        let Self { rank, world, local_rank, local_world } = found.shard;
        match found.launcher {
            Some(launcher) => {
                tracing::info!(launcher, rank, world, local_rank, local_world, "rank and world size from the launcher");
            }
            None => tracing::info!(rank, world, "no launcher found: one process"),
        }
        for half in found.halves {
            tracing::warn!(present = half.0, missing = half.1, "half of a launcher's pair is ignored");
        }
        Ok(found.shard)
    }

    /// As [`from_env`](Self::from_env), from any source of variables, and without a word in the log.
    ///
    /// ```
    /// use infeed::sampler::Shard;
    /// let vars = |name: &str| match name {
    ///     "RANK" => Some("3".to_owned()),
    ///     "WORLD_SIZE" => Some("8".to_owned()),
    ///     _ => None,
    /// };
    /// assert_eq!(Shard::from_vars(vars)?, Shard::new(3, 8)?);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_vars(vars: impl Fn(&str) -> Option<String>) -> Result<Self> {
        find(&vars).map(|found| found.shard)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.world)
    }
}

/// The serde form, checked on the way in.
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

/// A launcher that tells four numbers in four variables.
struct Launcher {
    name: &'static str,
    rank: &'static str,
    world: &'static str,
    local_rank: Option<&'static str>,
    local_world: Option<&'static str>,
}

/// In the order in which they win, but for the two that need more than a look: Slurm and SageMaker.
const TORCHRUN: Launcher = Launcher {
    name: "torchrun",
    rank: "RANK",
    world: "WORLD_SIZE",
    local_rank: Some("LOCAL_RANK"),
    local_world: Some("LOCAL_WORLD_SIZE"),
};
const LIGHTNING: Launcher = Launcher { name: "Lightning", rank: "GLOBAL_RANK", ..TORCHRUN };
const MPI: [Launcher; 4] = [
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        world: "OMPI_COMM_WORLD_SIZE",
        local_rank: Some("OMPI_COMM_WORLD_LOCAL_RANK"),
        local_world: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
    },
    Launcher {
        name: "MPICH",
        rank: "PMI_RANK",
        world: "PMI_SIZE",
        local_rank: Some("MPI_LOCALRANKID"),
        local_world: Some("MPI_LOCALNRANKS"),
    },
    Launcher {
        name: "MVAPICH",
        rank: "MV2_COMM_WORLD_RANK",
        world: "MV2_COMM_WORLD_SIZE",
        local_rank: Some("MV2_COMM_WORLD_LOCAL_RANK"),
        local_world: Some("MV2_COMM_WORLD_LOCAL_SIZE"),
    },
    // PMIx itself tells no world size in the environment.
    Launcher { name: "PMIx", rank: "PMIX_RANK", world: "WORLD_SIZE", local_rank: None, local_world: None },
];
const SLURM: Launcher = Launcher {
    name: "Slurm",
    rank: "SLURM_PROCID",
    world: "SLURM_NTASKS",
    local_rank: Some("SLURM_LOCALID"),
    local_world: Some("SLURM_NTASKS_PER_NODE"),
};
const KUBERNETES: Launcher = Launcher {
    name: "Kubernetes",
    rank: "JOB_COMPLETION_INDEX",
    world: "WORLD_SIZE",
    local_rank: None,
    local_world: None,
};

type Vars<'a> = &'a dyn Fn(&str) -> Option<String>;

struct Found {
    shard: Shard,
    launcher: Option<&'static str>,
    /// Ranks without a world size: (the variable that is there, the one that is not). Only when no launcher was found,
    /// since then each process would read everything.
    halves: Vec<(&'static str, &'static str)>,
}

fn find(vars: Vars<'_>) -> Result<Found> {
    let found = |launcher: &Launcher, shard| Ok(Found { shard, launcher: Some(launcher.name), halves: Vec::new() });
    if let Some(shard) = TORCHRUN.ask(vars)? {
        return found(&TORCHRUN, shard);
    }
    if let Some(shard) = lightning(vars)? {
        return found(&LIGHTNING, shard);
    }
    for launcher in &MPI {
        if let Some(shard) = launcher.ask(vars)? {
            return found(launcher, shard);
        }
    }
    if in_slurm_step(vars)
        && let Some(shard) = SLURM.ask(vars)?
    {
        return found(&SLURM, shard);
    }
    if let Some(shard) = sagemaker(vars)? {
        return Ok(Found { shard, launcher: Some("SageMaker"), halves: Vec::new() });
    }
    if let Some(shard) = KUBERNETES.ask(vars)? {
        return found(&KUBERNETES, shard);
    }
    let halves = [&TORCHRUN, &LIGHTNING].into_iter().chain(&MPI).chain([&KUBERNETES]);
    let halves =
        halves.filter(|l| vars(l.rank).is_some() && vars(l.world).is_none()).map(|l| (l.rank, l.world)).collect();
    Ok(Found { shard: Shard::default(), launcher: None, halves })
}

impl Launcher {
    /// `None` unless both rank and world size are there.
    fn ask(&self, vars: Vars<'_>) -> Result<Option<Shard>> {
        match (number(vars, self.rank)?, number(vars, self.world)?) {
            (Some(rank), Some(world)) => self.shard(vars, rank, world).map(Some),
            _ => Ok(None),
        }
    }

    fn shard(&self, vars: Vars<'_>, rank: u32, world: u32) -> Result<Shard> {
        let (rank_name, world_name) = (self.rank, self.world);
        let shard = Shard::new(rank, world).map_err(|_| {
            Error::config(format!(
                "{rank_name} is {rank} and {world_name} is {world}, but a rank is below the world size"
            ))
            .hint(format!("check what set them, or unset {rank_name}"))
        })?;
        let ask = |name: Option<&str>| name.map_or(Ok(None), |name| number(vars, name));
        let local_rank = ask(self.local_rank)?.unwrap_or(0);
        // Slurm's tasks per node are an upper bound, so the last node may have fewer, and a small job too.
        let local_world = ask(self.local_world)?.unwrap_or(local_rank.saturating_add(1));
        let bound = if self.name == SLURM.name { local_world.min(world).max(1) } else { local_world };
        shard.with_local(local_rank, bound).map_err(|_| {
            let (rank_name, world_name) = (self.local_rank.unwrap_or_default(), self.local_world.unwrap_or_default());
            Error::config(format!(
                "{rank_name} is {local_rank}, {world_name} is {local_world} and {} is {world}, but a local rank is \
                 below the local world size, which is at most the world size",
                self.world
            ))
            .hint(format!("check what set them, or unset {rank_name}"))
        })
    }
}

/// Lightning tells nodes where it does not tell the world size.
fn lightning(vars: Vars<'_>) -> Result<Option<Shard>> {
    if vars(LIGHTNING.world).is_some() {
        return LIGHTNING.ask(vars);
    }
    let by_nodes = Launcher { world: "NNODES", ..LIGHTNING };
    let (Some(rank), Some(nodes)) = (number(vars, by_nodes.rank)?, number(vars, by_nodes.world)?) else {
        return Ok(None);
    };
    let each = number(vars, "LOCAL_WORLD_SIZE")?.unwrap_or(1);
    let world = nodes
        .checked_mul(each)
        .ok_or_else(|| Error::config(format!("NNODES is {nodes} and LOCAL_WORLD_SIZE is {each}, which is too much")))?;
    by_nodes.shard(vars, rank, world).map(Some)
}

/// Whether `srun` started this process. A batch or `salloc` shell has `SLURM_PROCID` 0 and the whole job's
/// `SLURM_NTASKS` without being one of those tasks; Slurm numbers such steps (batch, extern, interactive) from
/// 0xffff_fffa up, or not at all.
fn in_slurm_step(vars: Vars<'_>) -> bool {
    vars("SLURM_STEP_ID").and_then(|id| id.trim().parse::<u32>().ok()).is_some_and(|id| id < 0xffff_fff0)
}

fn sagemaker(vars: Vars<'_>) -> Result<Option<Shard>> {
    let (Some(hosts), Some(current)) = (vars("SM_HOSTS"), vars("SM_CURRENT_HOST")) else {
        return Ok(None);
    };
    let list: Vec<String> = serde_json::from_str(&hosts).map_err(|cause| {
        Error::config(format!("SM_HOSTS is {hosts:?}"))
            .hint(r#"use a JSON list of host names such as ["algo-1","algo-2"]"#)
            .with_source(cause)
    })?;
    let Some(rank) = list.iter().position(|host| *host == current) else {
        return Err(Error::config(format!("SM_CURRENT_HOST is {current:?}, which is not in SM_HOSTS {hosts}"))
            .hint("check what set them, or unset SM_HOSTS"));
    };
    let count = |n: usize| u32::try_from(n).map_err(|_| Error::config(format!("SM_HOSTS names {n} hosts")));
    Shard::new(count(rank)?, count(list.len())?).map(Some)
}

/// A variable's number; an error that names the variable when it holds something else.
fn number(vars: Vars<'_>, name: &str) -> Result<Option<u32>> {
    let Some(value) = vars(name) else {
        return Ok(None);
    };
    value.trim().parse().map(Some).map_err(|cause| {
        Error::config(format!("{name} is {value:?}"))
            .hint(format!("use a whole number, or unset {name}"))
            .with_source(cause)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn vars(list: &'static str) -> impl Fn(&str) -> Option<String> {
        move |name| {
            let mut pairs = list.split_whitespace().map(|pair| pair.split_once('=').expect("NAME=value"));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        }
    }

    /// Launcher, rank, world, local rank, local world.
    fn found(list: &'static str) -> (Option<&'static str>, [u32; 4]) {
        let found = find(&vars(list)).unwrap_or_else(|error| panic!("{list}: {error}"));
        let Shard { rank, world, local_rank, local_world } = found.shard;
        (found.launcher, [rank, world, local_rank, local_world])
    }

    #[test]
    fn every_launcher_is_understood() {
        for (list, launcher, numbers) in [
            ("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", "torchrun", [5, 8, 1, 4]),
            ("RANK=5 WORLD_SIZE=8", "torchrun", [5, 8, 0, 1]),
            ("RANK=5 WORLD_SIZE=8 LOCAL_RANK=3", "torchrun", [5, 8, 3, 4]),
            ("GLOBAL_RANK=3 NNODES=4", "Lightning", [3, 4, 0, 1]),
            ("GLOBAL_RANK=3 NNODES=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", "Lightning", [3, 4, 1, 2]),
            ("GLOBAL_RANK=3 NNODES=2 WORLD_SIZE=16", "Lightning", [3, 16, 0, 1]),
            ("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0", "Open MPI", [2, 4, 0, 1]),
            ("PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "MPICH", [2, 4, 1, 2]),
            ("MV2_COMM_WORLD_RANK=2 MV2_COMM_WORLD_SIZE=4", "MVAPICH", [2, 4, 0, 1]),
            ("PMIX_RANK=2 WORLD_SIZE=4", "PMIx", [2, 4, 0, 1]),
            ("SLURM_PROCID=6 SLURM_NTASKS=8 SLURM_LOCALID=2 SLURM_STEP_ID=0", "Slurm", [6, 8, 2, 3]),
            (
                "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_STEP_ID=3 SLURM_NTASKS_PER_NODE=8",
                "Slurm",
                [1, 2, 1, 2],
            ),
            (r#"SM_HOSTS=["algo-1","algo-2","algo-3"] SM_CURRENT_HOST=algo-2"#, "SageMaker", [1, 3, 0, 1]),
            ("JOB_COMPLETION_INDEX=3 WORLD_SIZE=4", "Kubernetes", [3, 4, 0, 1]),
        ] {
            assert_eq!(found(list), (Some(launcher), numbers), "{list}");
        }
    }

    #[test]
    fn the_inner_launcher_wins_over_the_outer_one() {
        let slurm = "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0";
        for (list, launcher, numbers) in [
            ("RANK=7 WORLD_SIZE=8 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0", "torchrun", [7, 8, 0, 1]),
            (
                "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0",
                "Open MPI",
                [3, 4, 0, 1],
            ),
            (r#"RANK=2 WORLD_SIZE=4 SM_HOSTS=["a","b"] SM_CURRENT_HOST=b"#, "torchrun", [2, 4, 0, 1]),
            ("RANK=2 WORLD_SIZE=4 JOB_COMPLETION_INDEX=0", "torchrun", [2, 4, 0, 1]),
            (slurm, "Slurm", [0, 2, 0, 1]),
        ] {
            assert_eq!(found(list), (Some(launcher), numbers), "{list}");
        }
    }

    #[test]
    fn half_a_pair_is_no_launcher() {
        for list in [
            "",
            "RANK=3",
            "WORLD_SIZE=8",
            "LOCAL_RANK=1",
            "JOB_COMPLETION_INDEX=2",
            "SM_CURRENT_HOST=a",
            "PMIX_RANK=1",
            "SLURM_STEP_ID=0",
        ] {
            assert_eq!(found(list), (None, [0, 1, 0, 1]), "{list}");
        }
        // It falls through to the next launcher.
        assert_eq!(found("RANK=3 PMI_RANK=1 PMI_SIZE=2"), (Some("MPICH"), [1, 2, 0, 1]));
        let halves = find(&vars("JOB_COMPLETION_INDEX=2")).unwrap().halves;
        assert_eq!(halves, [("JOB_COMPLETION_INDEX", "WORLD_SIZE")]);
    }

    #[test]
    fn slurm_is_trusted_inside_srun_only() {
        for step in ["", "SLURM_STEP_ID=4294967291", "SLURM_STEP_ID=4294967290", "SLURM_STEP_ID=batch"] {
            let list: &'static str = format!("SLURM_PROCID=0 SLURM_NTASKS=8 {step}").leak();
            assert_eq!(found(list), (None, [0, 1, 0, 1]), "{list}");
        }
    }

    #[test]
    fn garbage_is_an_error_that_names_the_variable() {
        for (list, want) in [
            ("RANK=x WORLD_SIZE=8", r#"RANK is "x""#),
            ("RANK= WORLD_SIZE=8", r#"RANK is """#),
            ("RANK=-1 WORLD_SIZE=8", r#"RANK is "-1""#),
            ("RANK=8 WORLD_SIZE=8", "RANK is 8 and WORLD_SIZE is 8"),
            ("RANK=0 WORLD_SIZE=0", "RANK is 0 and WORLD_SIZE is 0"),
            ("RANK=0 WORLD_SIZE=99999999999", "WORLD_SIZE is"),
            ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=y", "LOCAL_RANK is"),
            ("RANK=0 WORLD_SIZE=8 LOCAL_RANK=4 LOCAL_WORLD_SIZE=4", "LOCAL_RANK is 4, LOCAL_WORLD_SIZE is 4"),
            ("GLOBAL_RANK=9 NNODES=2", "GLOBAL_RANK is 9 and NNODES is 2"),
            ("GLOBAL_RANK=9 NNODES=4000000000 LOCAL_WORLD_SIZE=8", "too much"),
            ("SLURM_PROCID=z SLURM_NTASKS=2 SLURM_STEP_ID=0", "SLURM_PROCID is"),
            ("SM_HOSTS=algo-1 SM_CURRENT_HOST=algo-1", "SM_HOSTS is"),
            (r#"SM_HOSTS=["algo-1"] SM_CURRENT_HOST=algo-2"#, r#"SM_CURRENT_HOST is "algo-2""#),
            ("JOB_COMPLETION_INDEX=4 WORLD_SIZE=4", "JOB_COMPLETION_INDEX is 4"),
        ] {
            let error = Shard::from_vars(vars(list)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{list}");
            assert!(error.to_string().contains(want), "{list}: {error}");
        }
    }

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
