//! Reads rank and world size from the launcher's variables, and reports which variables it used.
//!
//! ```text
//! launchers, inner before outer ─▶ the first with rank and world size ─▶ the same rank in the others: place on the machine
//!                               └▶ none, and half of a pair: refused
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - **A process that wrongly assumes that it is alone reads everything**, and only the run time shows it. So a rank
//!   without a world size is an error, and so is a world size above 1 without a rank.
//! - **Launchers stack**: `srun torchrun`, `mpirun` in a batch job, a toolkit in SageMaker. The inner launcher started
//!   this process; the outer ones started the inner one. If two of them give the same rank and world size, both
//!   describe this process. Then a value for this machine that one does not set (PMI under `srun`) is taken from the
//!   other.
//! - **Variables are inherited by other processes**: a shell of `salloc` and a batch script have a rank that belongs to
//!   no task, a step inherits the job's `SLURM_NTASKS_PER_NODE`, a task of a Dask worker inherits the worker's rank.
#![forbid(unsafe_code)]

use std::{
    env,
    path::{Path, PathBuf},
};

use infeed_core::error::{
    Error, Result,
    setting::{Front, RANK, WORLD_SIZE},
};
use infeed_store::Beside;
use serde::{Deserialize, Serialize};

use super::shard::Shard;

/// The variable that names SageMaker's base folder; `/opt/ml` if it is not set.
const BASE: &str = "SAGEMAKER_BASE_DIR";

/// Rank, world size and place on the machine, as set by a launcher.
///
/// The first launcher that gives both rank and world size is used, inner launchers before outer ones:
///
/// | launcher | rank | world size | on this machine |
/// |---|---|---|---|
/// | torchrun and launchers that use its variables (accelerate, DeepSpeed, Ray Train, PyTorchJob) | `RANK` | `WORLD_SIZE` | `LOCAL_RANK`, `LOCAL_WORLD_SIZE` |
/// | Lightning | `GLOBAL_RANK` | `WORLD_SIZE`, else `NNODES` × `LOCAL_WORLD_SIZE` | the same |
/// | Lightning's own processes (`ddp`) | `NODE_RANK` × processes of a node + `LOCAL_RANK` | `WORLD_SIZE` | the same |
/// | Horovod | `HOROVOD_RANK` | `HOROVOD_SIZE` | `…_LOCAL_RANK`, `…_LOCAL_SIZE` |
/// | Open MPI | `OMPI_COMM_WORLD_RANK` | `…_SIZE` | `…_LOCAL_RANK`, `…_LOCAL_SIZE` |
/// | MPICH, Intel MPI, Cray PALS, `srun --mpi=pmi2` | `PMI_RANK` | `PMI_SIZE` | `MPI_LOCALRANKID`, `MPI_LOCALNRANKS`, or `PMI_LOCAL_RANK`, `PMI_LOCAL_SIZE` |
/// | MVAPICH | `MV2_COMM_WORLD_RANK` | `…_SIZE` | `…_LOCAL_RANK`, `…_LOCAL_SIZE` |
/// | LSF's `jsrun` | `JSM_NAMESPACE_RANK` | `…_SIZE` | `…_LOCAL_RANK`, `…_LOCAL_SIZE` |
/// | Flux | `FLUX_TASK_RANK` | `FLUX_JOB_SIZE` | `FLUX_TASK_LOCAL_ID` |
/// | Slurm, inside `srun` only | `SLURM_PROCID` | `SLURM_STEP_NUM_TASKS`, else `SLURM_NTASKS` | `SLURM_LOCALID`, place `SLURM_NODEID` of `SLURM_STEP_TASKS_PER_NODE` |
/// | PMIx | `PMIX_RANK` | `WORLD_SIZE` | |
/// | SageMaker | index of `SM_CURRENT_HOST` in `SM_HOSTS` | hosts in `SM_HOSTS` | |
/// | SageMaker without its toolkit, and its processing jobs | the same in `resourceconfig.json` of `/opt/ml/input/config` or `/opt/ml/config` | | |
/// | AWS Batch, several nodes | `AWS_BATCH_JOB_NODE_INDEX` | `AWS_BATCH_JOB_NUM_NODES` | |
/// | Kubernetes, indexed job | `JOB_COMPLETION_INDEX` | `WORLD_SIZE` | |
///
/// If that launcher does not give the values for this machine, they are taken from another one with the same rank and
/// world size.
///
/// **These are errors**, because the process would wrongly assume that it is alone: a rank without a world size, and a
/// world size above 1 without a rank. Lightning's own processes on a second node are an error unless `LOCAL_WORLD_SIZE`
/// or `NNODES` gives the number of processes per node. An incomplete pair is ignored if another launcher gives a
/// complete one.
///
/// **Not detected**: `pbsdsh`, LSF's `blaunch`, HTCondor, and workers that run tasks (Dask, Ray's plain tasks), which
/// inherit the variables of the worker. Set rank and world size yourself there. Tasks of job arrays (Slurm, AWS Batch,
/// …) count as separate jobs, except with [`of_array_task`](Self::of_array_task).
///
/// ```
/// use infeed::sampler::{Launch, Shard};
/// let vars = |name: &str| match name {
///     "RANK" => Some("3".to_owned()),
///     "WORLD_SIZE" => Some("8".to_owned()),
///     _ => None,
/// };
/// let launch = Launch::from_vars(vars)?;
/// assert_eq!((launch.launcher, launch.shard), (Some("torchrun"), Shard::new(3, 8)?));
/// assert_eq!(launch.variables, ["RANK", "WORLD_SIZE"]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Launch {
    /// The launcher whose values are used; `None`: no launcher was found, a job of one process.
    pub launcher: Option<&'static str>,
    /// Rank, world size and place on the machine.
    pub shard: Shard,
    /// The variables and files with these values: rank and world size, then the place on the machine.
    pub variables: Vec<String>,
}

impl Launch {
    /// Reads the process's environment variables, and SageMaker's files if there are any. Rank 0 of 1 if there is no
    /// launcher. Logs the result (level info).
    ///
    /// # Errors
    /// `Config` for an impossible value or an incomplete pair; the message has the variable's name and what to add.
    pub fn from_env() -> Result<Self> {
        Self::told(find(&environment)?, &environment)
    }

    /// The same as [`from_env`](Self::from_env), from any source of variables and without logging. SageMaker's files
    /// are read if `SAGEMAKER_BASE_DIR` is among the variables.
    ///
    /// # Errors
    /// Those of [`from_env`](Self::from_env).
    pub fn from_vars(vars: impl Fn(&str) -> Option<String>) -> Result<Self> {
        find(&vars)
    }

    /// The same as [`from_env`](Self::from_env), for an array job whose tasks share the work: each task is a rank then.
    /// With `n` ranks in each of `k` tasks, there are `k × n` ranks.
    ///
    /// | array | index | tasks |
    /// |---|---|---|
    /// | Slurm | `SLURM_ARRAY_TASK_ID` | from `…_MIN`, `…_MAX`, `…_STEP` and `…_COUNT` |
    /// | AWS Batch | `AWS_BATCH_JOB_ARRAY_INDEX` | `AWS_BATCH_JOB_ARRAY_SIZE` |
    /// | Grid Engine | `SGE_TASK_ID` | from `SGE_TASK_FIRST`, `…_LAST` and `…_STEPSIZE` |
    /// | Google Batch | `BATCH_TASK_INDEX` | `BATCH_TASK_COUNT` |
    /// | Google Cloud Run | `CLOUD_RUN_TASK_INDEX` | `CLOUD_RUN_TASK_COUNT` |
    ///
    /// # Errors
    /// Those of [`from_env`](Self::from_env). Also `Config` for arrays whose variables do not give the task's index and
    /// the number of tasks: PBS, LSF, and Slurm with an uneven list (`--array=1,3,7`) or a part of another array
    /// (`--array=2`).
    pub fn of_array_task() -> Result<Self> {
        Self::told(find_in_array(&environment)?, &environment)
    }

    fn told(self, vars: Vars<'_>) -> Result<Self> {
        let (rank, world) = (self.shard.rank(), self.shard.world());
        let (local_rank, local_world) = (self.shard.local_rank(), self.shard.local_world());
        match self.launcher {
            Some(launcher) => {
                let variables = self.variables.join(", ");
                tracing::info!(launcher, rank, world, local_rank, local_world, variables, "ranks by the launcher");
            }
            None => tracing::info!(rank, world, "no launcher found: one process"),
        }
        let known = |name: &str| self.variables.iter().any(|told| told == name);
        if !known("WORLD_SIZE")
            && let Some(other) = vars("WORLD_SIZE").and_then(|text| text.trim().parse::<u32>().ok())
            && other > 1
            && other != world
        {
            let launcher = self.launcher.unwrap_or_default();
            tracing::warn!(
                launcher,
                world,
                "WORLD_SIZE is {other} but there is no rank that belongs to it: it is ignored"
            );
        }
        Ok(self)
    }
}

impl Shard {
    /// Rank and world size from the launcher's environment variables; rank 0 of 1 if there is no launcher. [`Launch`]
    /// has the list of launchers, and reports which one was found.
    ///
    /// # Errors
    /// Those of [`Launch::from_env`].
    pub fn from_env() -> Result<Self> {
        Launch::from_env().map(|launch| launch.shard)
    }

    /// The same as [`from_env`](Self::from_env), from any source of variables and without logging.
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
    /// Those of [`Launch::from_env`].
    pub fn from_vars(vars: impl Fn(&str) -> Option<String>) -> Result<Self> {
        find(&vars).map(|launch| launch.shard)
    }
}

/// Replaces bytes that are not Unicode, so that such a value causes an error instead of being ignored.
fn environment(name: &str) -> Option<String> {
    let value = env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    value.or_else(|| (name == BASE).then(|| "/opt/ml".to_owned()))
}

type Vars<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A launcher and its variables.
struct Launcher {
    name: &'static str,
    rank: &'static str,
    /// The first of these that is set is used.
    world: &'static [&'static str],
    local_rank: &'static [&'static str],
    local_world: &'static [&'static str],
    /// The hint for a rank without a world size.
    add: &'static str,
    ask: fn(&Self, Vars<'_>) -> Result<Answer>,
}

const PLAIN: Launcher = Launcher {
    name: "",
    rank: "",
    world: &[],
    local_rank: &[],
    local_world: &[],
    add: "set it to the number of processes",
    ask: Launcher::pair,
};
const TORCHRUN: Launcher = Launcher {
    name: "torchrun",
    rank: "RANK",
    world: &["WORLD_SIZE"],
    local_rank: &["LOCAL_RANK"],
    local_world: &["LOCAL_WORLD_SIZE"],
    ..PLAIN
};

/// Inner launchers before outer ones.
static LAUNCHERS: [Launcher; 14] = [
    TORCHRUN,
    Launcher { name: "Lightning", rank: "GLOBAL_RANK", ask: lightning, ..TORCHRUN },
    Launcher { name: "Lightning", rank: "NODE_RANK", ask: lightning_processes, ..TORCHRUN },
    Launcher {
        name: "Horovod",
        rank: "HOROVOD_RANK",
        world: &["HOROVOD_SIZE"],
        local_rank: &["HOROVOD_LOCAL_RANK"],
        local_world: &["HOROVOD_LOCAL_SIZE"],
        ..PLAIN
    },
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        world: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_world: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        ..PLAIN
    },
    Launcher {
        name: "MPICH",
        rank: "PMI_RANK",
        world: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK"],
        local_world: &["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
        ..PLAIN
    },
    Launcher {
        name: "MVAPICH",
        rank: "MV2_COMM_WORLD_RANK",
        world: &["MV2_COMM_WORLD_SIZE"],
        local_rank: &["MV2_COMM_WORLD_LOCAL_RANK"],
        local_world: &["MV2_COMM_WORLD_LOCAL_SIZE"],
        ..PLAIN
    },
    Launcher {
        name: "LSF jsrun",
        rank: "JSM_NAMESPACE_RANK",
        world: &["JSM_NAMESPACE_SIZE"],
        local_rank: &["JSM_NAMESPACE_LOCAL_RANK"],
        local_world: &["JSM_NAMESPACE_LOCAL_SIZE"],
        ..PLAIN
    },
    Launcher {
        name: "Flux",
        rank: "FLUX_TASK_RANK",
        world: &["FLUX_JOB_SIZE"],
        local_rank: &["FLUX_TASK_LOCAL_ID"],
        ..PLAIN
    },
    Launcher {
        name: "Slurm",
        rank: "SLURM_PROCID",
        world: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: &["SLURM_LOCALID"],
        ask: slurm,
        ..PLAIN
    },
    // PMIx itself sets no world size in the environment.
    Launcher { name: "PMIx", rank: "PMIX_RANK", world: &["WORLD_SIZE"], ..PLAIN },
    Launcher { name: "SageMaker", ask: sagemaker, ..PLAIN },
    Launcher { name: "AWS Batch", rank: "AWS_BATCH_JOB_NODE_INDEX", world: &["AWS_BATCH_JOB_NUM_NODES"], ..PLAIN },
    Launcher {
        name: "Kubernetes",
        rank: "JOB_COMPLETION_INDEX",
        world: &["WORLD_SIZE"],
        add: "add it to the container's `env` with the job's `completions`: `- {name: WORLD_SIZE, value: \"4\"}`",
        ..PLAIN
    },
];

/// The values of one launcher.
#[derive(Clone, Debug)]
struct LauncherValues {
    launcher: &'static str,
    rank: u32,
    world: u32,
    local_rank: Option<u32>,
    local_world: Option<u32>,
    /// The variables or files that these four values are from.
    names: [String; 4],
}

/// The result for one launcher; `Half`: some of its values are there, but not enough.
enum Answer {
    Whole(LauncherValues),
    Half(Error),
    Nothing,
}

fn find(vars: Vars<'_>) -> Result<Launch> {
    let mut half = None;
    let mut found = None;
    let mut needs = None;
    for launcher in &LAUNCHERS {
        match (launcher.ask)(launcher, vars)? {
            Answer::Whole(told) if needs.is_none_or(|world| world == told.world) => {
                found = Some(told);
                break;
            }
            Answer::Whole(_) | Answer::Nothing => {}
            Answer::Half(error) => {
                // Lightning's variables are not stale: a launcher with another world size describes another process.
                if needs.is_none() && is_lightning(vars) {
                    needs = number(vars, "WORLD_SIZE")?;
                }
                half.get_or_insert(error);
            }
        }
    }
    let Some(mut told) = found else {
        return match (half, number(vars, "WORLD_SIZE")?) {
            (Some(error), _) => Err(error),
            (None, Some(world)) if world > 1 => Err(Error::config(format!(
                "WORLD_SIZE is {world}, but no launcher sets the rank"
            ))
            .with_hint(
                "set RANK to this process's number from 0, or unset WORLD_SIZE; without a rank each process would read \
                     everything",
            )),
            _ => Ok(Launch::default()),
        };
    };
    for launcher in &LAUNCHERS {
        if told.local_rank.is_some() && told.local_world.is_some() {
            break;
        }
        // Errors of the other launchers do not matter.
        if let Ok(Answer::Whole(other)) = (launcher.ask)(launcher, vars) {
            told.complete(other);
        }
    }
    told.launch()
}

impl Launcher {
    /// Rank and world size from two variables.
    fn pair(&self, vars: Vars<'_>) -> Result<Answer> {
        let world = first(vars, self.world)?;
        match (number(vars, self.rank)?, world) {
            (Some(rank), Some((world, name))) => self.tell(vars, rank, world, name).map(Answer::Whole),
            (Some(rank), None) => Ok(Answer::Half(self.half(rank))),
            // WORLD_SIZE, which many launchers use, is handled in `find`.
            (None, Some((world, name))) if world > 1 && name != "WORLD_SIZE" => {
                let what = format!("{name} is {world}, but {} is not set", self.rank);
                Ok(Answer::Half(Error::config(what).with_hint(format!("set {}, or unset {name}", self.rank))))
            }
            _ => Ok(Answer::Nothing),
        }
    }

    fn half(&self, rank: u32) -> Error {
        let (name, world) = (self.rank, self.world[0]);
        Error::config(format!("{name} is {rank}, but {world} is not set: each process would read everything"))
            .with_hint(format!("{}; if each process is a job of its own, unset {name} or give rank 0 of 1", self.add))
    }

    fn tell(&self, vars: Vars<'_>, rank: u32, world: u32, world_name: &str) -> Result<LauncherValues> {
        let local_rank = first(vars, self.local_rank)?;
        let local_world = first(vars, self.local_world)?;
        let name = |of: Option<(u32, &str)>| of.map(|(_, name)| name.to_owned()).unwrap_or_default();
        let names = [self.rank.to_owned(), world_name.to_owned(), name(local_rank), name(local_world)];
        let number = |of: Option<(u32, &str)>| of.map(|(number, _)| number);
        let (local_rank, local_world) = (number(local_rank), number(local_world));
        Ok(LauncherValues { launcher: self.name, rank, world, local_rank, local_world, names })
    }
}

impl LauncherValues {
    /// Takes values for this machine from another launcher if they are missing here and both describe the same process.
    fn complete(&mut self, other: Self) {
        if (self.rank, self.world) != (other.rank, other.world) {
            return;
        }
        let [_, _, local_rank, local_world] = other.names;
        if self.local_rank.is_none() {
            (self.local_rank, self.names[2]) = (other.local_rank, local_rank);
        }
        if self.local_world.is_none() && self.local_rank.is_some() && self.local_rank == other.local_rank {
            (self.local_world, self.names[3]) = (other.local_world, local_world);
        }
    }

    fn launch(self) -> Result<Launch> {
        let Self { launcher, rank, world, local_rank, local_world, names } = self;
        let [rank_name, world_name, local_rank_name, local_world_name] = &names;
        let shard = Shard::new(rank, world).map_err(|_| {
            Error::config(format!(
                "{rank_name} is {rank} and {world_name} is {world}, but a rank is below the world size"
            ))
            .with_hint(format!("check what set them, or unset {rank_name}"))
        })?;
        let local_rank = local_rank.unwrap_or(0);
        let local_world = local_world.unwrap_or(local_rank.saturating_add(1));
        let shard = shard.with_local(local_rank, local_world).map_err(|_| {
            Error::config(format!(
                "{local_rank_name} is {local_rank}, {local_world_name} is {local_world} and {world_name} is {world}, but \
                 a local rank is below the local world size, which is at most the world size"
            ))
            .with_hint(format!("check what set them, or unset {local_rank_name}"))
        })?;
        let mut variables: Vec<String> = Vec::new();
        for name in names {
            // One list of hosts gives two of the numbers.
            if !name.is_empty() && !variables.contains(&name) {
                variables.push(name);
            }
        }
        Ok(Launch { launcher: Some(launcher), shard, variables })
    }
}

/// If Lightning sets no world size, it sets the number of nodes.
fn lightning(launcher: &Launcher, vars: Vars<'_>) -> Result<Answer> {
    let (None, Some(rank), Some(nodes)) = (vars("WORLD_SIZE"), number(vars, launcher.rank)?, number(vars, "NNODES")?)
    else {
        return launcher.pair(vars);
    };
    let each = number(vars, "LOCAL_WORLD_SIZE")?.unwrap_or(1);
    let world = nodes
        .checked_mul(each)
        .ok_or_else(|| Error::config(format!("NNODES is {nodes} and LOCAL_WORLD_SIZE {each}, which is too many")))?;
    launcher.tell(vars, rank, world, "NNODES").map(Answer::Whole)
}

/// Whether the variables are those that Lightning's `ddp` sets for the processes that it starts. It sets no rank.
fn is_lightning(vars: Vars<'_>) -> bool {
    ["WORLD_SIZE", "LOCAL_RANK", "NODE_RANK"].iter().all(|name| vars(name).is_some())
        && ["RANK", "GLOBAL_RANK"].iter().all(|name| vars(name).is_none())
}

/// The rank is that of the node's first process plus the local rank.
fn lightning_processes(launcher: &Launcher, vars: Vars<'_>) -> Result<Answer> {
    if !is_lightning(vars) {
        return Ok(match number(vars, "NODE_RANK")? {
            // The first process of each node, before it starts the others.
            Some(node) if node > 0 && vars("WORLD_SIZE").is_none() => {
                Answer::Half(Error::config(format!("NODE_RANK is {node}, but WORLD_SIZE is not set")).with_hint(
                    "make the loader after the trainer has started its processes, or set RANK and WORLD_SIZE",
                ))
            }
            _ => Answer::Nothing,
        });
    }
    let (Some(world), Some(local_rank), Some(node)) =
        (number(vars, "WORLD_SIZE")?, number(vars, "LOCAL_RANK")?, number(vars, "NODE_RANK")?)
    else {
        return Ok(Answer::Nothing);
    };
    let each = match (number(vars, "LOCAL_WORLD_SIZE")?, number(vars, "NNODES")?) {
        (Some(each), _) => Some((each, "LOCAL_WORLD_SIZE")),
        (None, Some(nodes)) if nodes > 0 && world % nodes == 0 => Some((world / nodes, "NNODES")),
        // On a job of several nodes the other nodes get an error here. So if the job goes on, this is the only node.
        _ if node == 0 => Some((world, "NODE_RANK")),
        _ => None,
    };
    let Some((each, each_name)) = each else {
        let what = format!(
            "WORLD_SIZE is {world}, LOCAL_RANK is {local_rank} and NODE_RANK is {node}, which does not give the rank"
        );
        return Ok(Answer::Half(
            Error::config(what).with_hint("set LOCAL_WORLD_SIZE to the number of processes of a node, or set RANK"),
        ));
    };
    let rank = node.checked_mul(each).and_then(|before| before.checked_add(local_rank)).ok_or_else(|| {
        Error::config(format!("NODE_RANK is {node} and {each_name} gives {each} processes a node, which is too many"))
    })?;
    let names = ["NODE_RANK", "WORLD_SIZE", "LOCAL_RANK", each_name].map(str::to_owned);
    let told = LauncherValues {
        launcher: launcher.name,
        rank,
        world,
        local_rank: Some(local_rank),
        local_world: Some(each),
        names,
    };
    Ok(Answer::Whole(told))
}

/// A batch or `salloc` shell has `SLURM_PROCID` 0 and the whole job's `SLURM_NTASKS` without being one of those tasks;
/// Slurm numbers such steps (batch, extern, interactive) from 0xffff_fffa up, or not at all.
fn slurm(launcher: &Launcher, vars: Vars<'_>) -> Result<Answer> {
    let step = vars("SLURM_STEP_ID").and_then(|id| id.trim().parse::<u32>().ok());
    if step.is_none_or(|id| id >= 0xffff_fff0) {
        return Ok(Answer::Nothing);
    }
    let Answer::Whole(mut told) = launcher.pair(vars)? else { return Ok(Answer::Nothing) };
    let local_rank = told.local_rank.unwrap_or(0);
    if let Some((local_world, name)) = slurm_local_world(vars, local_rank, told.world) {
        (told.local_world, told.names[3]) = (Some(local_world), name.to_owned());
    }
    Ok(Answer::Whole(told))
}

/// Number of tasks on this node. Impossible values are ignored: a step inherits numbers of its job, or of an enclosing
/// job.
fn slurm_local_world(vars: Vars<'_>, local_rank: u32, world: u32) -> Option<(u32, &'static str)> {
    let can_be = |tasks: &u32| (local_rank + 1..=world).contains(tasks);
    let step = || {
        let node = vars("SLURM_NODEID")?.trim().parse().ok()?;
        tasks_of_node(&vars("SLURM_STEP_TASKS_PER_NODE")?, node)
    };
    // An upper bound, for nodes with fewer tasks.
    let asked = || vars("SLURM_NTASKS_PER_NODE")?.trim().parse::<u32>().ok().map(|most| most.min(world));
    let step = step().filter(can_be).map(|tasks| (tasks, "SLURM_STEP_TASKS_PER_NODE"));
    step.or_else(|| asked().filter(can_be).map(|tasks| (tasks, "SLURM_NTASKS_PER_NODE")))
}

/// The number at a node's index in `3,1` or `2(x2),1`.
fn tasks_of_node(list: &str, node: usize) -> Option<u32> {
    let mut before = 0_usize;
    for part in list.trim().split(',') {
        let (tasks, times) = match part.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        before = before.checked_add(times)?;
        if node < before {
            return tasks.parse().ok();
        }
    }
    None
}

/// Hosts of a SageMaker job, the same list on each of them.
#[derive(Clone, Debug, Deserialize)]
struct Hosts {
    #[serde(rename = "current_host")]
    current: String,
    #[serde(rename = "hosts")]
    all: Vec<String>,
    /// The variable or file it is from, for errors.
    #[serde(skip)]
    from: String,
}

impl Hosts {
    /// From the toolkit's variables, otherwise from the file that exists without it; `None` outside of SageMaker.
    fn find(vars: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let hosts = match (vars("SM_HOSTS"), vars("SM_CURRENT_HOST")) {
            (Some(hosts), Some(current)) => {
                let all = serde_json::from_str(&hosts).map_err(|cause| {
                    Error::config(format!("SM_HOSTS is {hosts:?}"))
                        .with_hint(r#"use a JSON list of host names such as ["algo-1","algo-2"]"#)
                        .with_source(cause)
                })?;
                Self { current, all, from: "SM_HOSTS".into() }
            }
            _ => {
                let Some(root) = vars(BASE).map(PathBuf::from) else { return Ok(None) };
                // Training jobs, then processing jobs.
                let mut files =
                    ["input/config", "config"].map(|dir| root.join(dir).join("resourceconfig.json")).into_iter();
                let found = files
                    .find_map(|file| json::<Self>(&file).map(|hosts| hosts.map(|hosts| (hosts, file))).transpose());
                let Some((hosts, file)) = found.transpose()? else { return Ok(None) };
                Self { from: file.display().to_string(), ..hosts }
            }
        };
        if !hosts.all.contains(&hosts.current) {
            let Self { current, all, from } = &hosts;
            return Err(Error::config(format!("the current host {current:?} is not among the job's hosts {all:?}"))
                .at_object(from.clone())
                .with_hint("check what set them"));
        }
        Ok(Some(hosts))
    }

    /// The index of this host in the list.
    fn rank(&self) -> usize {
        self.all.iter().position(|host| *host == self.current).unwrap_or_default()
    }
}

/// A file of a SageMaker job; `None` if it does not exist.
fn json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>> {
    let refuse = |what: &'static str| Error::config(what).at_object(path.display().to_string());
    let text = match Beside::Note.read_text(path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(refuse("a file of the SageMaker job can't be read").with_source(error)),
    };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|e| refuse("a file of the SageMaker job does not have the expected content").with_source(e))
}

fn sagemaker(launcher: &Launcher, vars: Vars<'_>) -> Result<Answer> {
    let Some(hosts) = Hosts::find(vars)? else { return Ok(Answer::Nothing) };
    let count = |n: usize| u32::try_from(n).map_err(|_| Error::config(format!("{} names {n} hosts", hosts.from)));
    let (rank, world) = (count(hosts.rank())?, count(hosts.all.len())?);
    let rank_name = if hosts.from == "SM_HOSTS" { "SM_CURRENT_HOST".to_owned() } else { hosts.from.clone() };
    let names = [rank_name, hosts.from, String::new(), String::new()];
    Ok(Answer::Whole(LauncherValues {
        launcher: launcher.name,
        rank,
        world,
        local_rank: None,
        local_world: None,
        names,
    }))
}

/// The index of a task in its array.
struct Task {
    name: &'static str,
    index: u32,
    count: u32,
    variables: [&'static str; 2],
}

fn find_in_array(vars: Vars<'_>) -> Result<Launch> {
    let launch = find(vars)?;
    let Some(Task { name, index, count, variables }) = task(vars)? else { return Ok(launch) };
    if index >= count {
        let [index_name, count_name] = variables;
        return Err(Error::config(format!(
            "{index_name} gives index {index}, but {count_name} gives only {count} tasks"
        ))
        .with_hint(format!("give rank and world size yourself: {}", by_hand("R", "W"))));
    }
    let Launch { launcher, shard, variables: mut told } = launch;
    let of = u64::from(shard.world()) * u64::from(count);
    let Ok(of) = u32::try_from(of) else {
        return Err(Error::config(format!("{count} tasks of {} ranks are too many", shard.world())));
    };
    let together = Shard::new(index * shard.world() + shard.rank(), of)?;
    let together = together.with_local(shard.local_rank(), shard.local_world())?;
    told.extend(variables.map(str::to_owned));
    // Usually a task has one process; then the array is reported as the launcher.
    let launcher = if shard.world() > 1 { launcher } else { Some(name) };
    Ok(Launch { launcher, shard: together, variables: told })
}

/// How a user sets rank and world size.
fn by_hand(rank: &str, world: &str) -> String {
    match Front::here() {
        Front::Library => format!("{RANK}(Shard::new({rank}, {world})?)"),
        Front::Command => format!("{RANK} {rank} {WORLD_SIZE} {world}"),
        Front::Python => format!("{RANK}={rank}, {WORLD_SIZE}={world}"),
    }
}

/// The same for tasks of an array, whose variable counts from `first`.
fn of_variable(variable: &str, first: u32) -> String {
    let rank = match (Front::here(), first) {
        (Front::Command, 0) => format!("${variable}"),
        (Front::Command, _) => format!("$(({variable} - {first}))"),
        (Front::Python, 0) => format!("int(os.environ[{variable:?}])"),
        (Front::Python, _) => format!("int(os.environ[{variable:?}]) - {first}"),
        (Front::Library, 0) => variable.to_owned(),
        (Front::Library, _) => format!("{variable} - {first}"),
    };
    by_hand(&rank, "N")
}

fn task(vars: Vars<'_>) -> Result<Option<Task>> {
    const PAIRS: [(&str, [&str; 2]); 3] = [
        ("AWS Batch array", ["AWS_BATCH_JOB_ARRAY_INDEX", "AWS_BATCH_JOB_ARRAY_SIZE"]),
        ("Google Batch", ["BATCH_TASK_INDEX", "BATCH_TASK_COUNT"]),
        ("Google Cloud Run", ["CLOUD_RUN_TASK_INDEX", "CLOUD_RUN_TASK_COUNT"]),
    ];
    const STEPS: [(&str, [&str; 4], Option<&str>); 2] = [
        (
            "Slurm array",
            ["SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_STEP"],
            Some("SLURM_ARRAY_TASK_COUNT"),
        ),
        ("Grid Engine array", ["SGE_TASK_ID", "SGE_TASK_FIRST", "SGE_TASK_LAST", "SGE_TASK_STEPSIZE"], None),
    ];
    // The index variable exists, but no variable has the number of tasks.
    const ALONE: [(&str, u32, &str); 3] =
        [("PBS_ARRAY_INDEX", 0, "-J 0-(N-1)"), ("PBS_ARRAYID", 0, "-t 0-(N-1)"), ("LSB_JOBINDEX", 1, "[1-N]")];
    for (name, [index_name, count_name]) in PAIRS {
        if let (Some(index), Some(count)) = (number(vars, index_name)?, number(vars, count_name)?) {
            return Ok(Some(Task { name, index, count, variables: [index_name, count_name] }));
        }
    }
    for (name, [id_name, first_name, last_name, step_name], count_name) in STEPS {
        if vars(id_name).is_none_or(|id| id.trim() == "undefined") {
            continue;
        }
        let Some(id) = number(vars, id_name)? else { continue };
        let (first, last) = (number(vars, first_name)?, number(vars, last_name)?);
        let step = number(vars, step_name)?.unwrap_or(1).max(1);
        let told = count_name.map_or(Ok(None), |name| number(vars, name))?;
        let place = || {
            let (first, last) = (first?, last?);
            let (index, count) = (id.checked_sub(first)? / step, (last.checked_sub(first)? / step).checked_add(1)?);
            // `--array=2`, which counts from 2 to 2: a user runs a part of another array again.
            let again = count_name.is_some() && count == 1 && first > 0;
            let even = (id - first) % step == 0 && told.is_none_or(|told| told == count) && !again;
            even.then_some((index, count))
        };
        let Some((index, count)) = place() else {
            let what = format!("{id_name} is {id}, but its index among the tasks of the array is not known");
            return Err(Error::config(what).with_hint(format!(
                "use an array that counts evenly, such as 0-7 (`scontrol requeue` keeps it), or give rank and world size: {}",
                by_hand("R", "W")
            )));
        };
        return Ok(Some(Task { name, index, count, variables: [id_name, last_name] }));
    }
    for (index_name, first, array) in ALONE {
        // A job of LSF that is not an array has index 0.
        if let Some(index) = vars(index_name).filter(|index| index_name != "LSB_JOBINDEX" || index.trim() != "0") {
            let what = format!("{index_name} is {index}: a task of an array, but no variable has the number of tasks");
            return Err(Error::config(what).with_hint(format!(
                "give rank and world size: {} for {array}; if each task has a dataset of its own, {}",
                of_variable(index_name, first),
                by_hand("0", "1")
            )));
        }
    }
    Ok(None)
}

/// The first of these that is set.
fn first<'a>(vars: Vars<'_>, names: &'a [&'a str]) -> Result<Option<(u32, &'a str)>> {
    for name in names {
        if let Some(number) = number(vars, name)? {
            return Ok(Some((number, name)));
        }
    }
    Ok(None)
}

/// A variable's number; an error with the variable's name if it holds something else.
fn number(vars: Vars<'_>, name: &str) -> Result<Option<u32>> {
    let Some(value) = vars(name) else {
        return Ok(None);
    };
    value.trim().parse().map(Some).map_err(|cause| {
        Error::config(format!("{name} is {value:?}"))
            .with_hint(format!("use a whole number, or unset {name}"))
            .with_source(cause)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use infeed_core::error::ErrorKind;

    fn vars(list: &'static str) -> impl Fn(&str) -> Option<String> {
        move |name| {
            let mut pairs = list.split_whitespace().map(|pair| pair.split_once('=').expect("NAME=value"));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        }
    }

    /// Launcher, rank, world, local rank, local world.
    fn numbers(launch: &Launch) -> (Option<&'static str>, [u32; 4]) {
        let shard = launch.shard;
        (launch.launcher, [shard.rank(), shard.world(), shard.local_rank(), shard.local_world()])
    }

    fn found(list: &'static str) -> (Option<&'static str>, [u32; 4]) {
        numbers(&find(&vars(list)).unwrap_or_else(|error| panic!("{list}: {error}")))
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
            ("HOROVOD_RANK=3 HOROVOD_SIZE=4 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2", "Horovod", [3, 4, 1, 2]),
            ("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0", "Open MPI", [2, 4, 0, 1]),
            ("PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "MPICH", [2, 4, 1, 2]),
            ("PMI_RANK=2 PMI_SIZE=4 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=2", "MPICH", [2, 4, 1, 2]),
            ("MV2_COMM_WORLD_RANK=2 MV2_COMM_WORLD_SIZE=4", "MVAPICH", [2, 4, 0, 1]),
            ("JSM_NAMESPACE_RANK=2 JSM_NAMESPACE_SIZE=4 JSM_NAMESPACE_LOCAL_RANK=1", "LSF jsrun", [2, 4, 1, 2]),
            ("FLUX_TASK_RANK=3 FLUX_JOB_SIZE=4 FLUX_TASK_LOCAL_ID=1", "Flux", [3, 4, 1, 2]),
            ("PMIX_RANK=2 WORLD_SIZE=4", "PMIx", [2, 4, 0, 1]),
            ("SLURM_PROCID=6 SLURM_NTASKS=8 SLURM_LOCALID=2 SLURM_STEP_ID=0", "Slurm", [6, 8, 2, 3]),
            (r#"SM_HOSTS=["algo-1","algo-2","algo-3"] SM_CURRENT_HOST=algo-2"#, "SageMaker", [1, 3, 0, 1]),
            ("AWS_BATCH_JOB_NODE_INDEX=1 AWS_BATCH_JOB_NUM_NODES=3", "AWS Batch", [1, 3, 0, 1]),
            ("JOB_COMPLETION_INDEX=3 WORLD_SIZE=4", "Kubernetes", [3, 4, 0, 1]),
        ] {
            assert_eq!(found(list), (Some(launcher), numbers), "{list}");
        }
        assert_eq!(found(""), (None, [0, 1, 0, 1]));
    }

    #[test]
    fn the_variables_that_told_it_are_named() {
        for (list, named) in [
            ("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1", "RANK WORLD_SIZE LOCAL_RANK"),
            (r#"SM_HOSTS=["a","b"] SM_CURRENT_HOST=a"#, "SM_CURRENT_HOST SM_HOSTS"),
            (
                "PMI_RANK=1 PMI_SIZE=2 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_STEP_ID=0",
                "PMI_RANK PMI_SIZE SLURM_LOCALID",
            ),
            ("", ""),
        ] {
            assert_eq!(find(&vars(list)).unwrap().variables.join(" "), named, "{list}");
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
            // A pair beats half of another, wherever that stands.
            ("RANK=3 PMI_RANK=1 PMI_SIZE=2", "MPICH", [1, 2, 0, 1]),
            ("WORLD_SIZE=8 PMI_RANK=1 PMI_SIZE=2", "MPICH", [1, 2, 0, 1]),
            ("PMIX_RANK=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0", "Slurm", [1, 2, 0, 1]),
            // Lightning's processes within one task of Slurm.
            (
                "WORLD_SIZE=2 LOCAL_RANK=1 NODE_RANK=0 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_ID=0",
                "Lightning",
                [1, 2, 1, 2],
            ),
        ] {
            assert_eq!(found(list), (Some(launcher), numbers), "{list}");
        }
    }

    #[test]
    fn what_the_inner_one_does_not_tell_of_the_machine_the_outer_one_does_of_the_same_process() {
        let slurm = "SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_NODEID=1 \
                     SLURM_STEP_TASKS_PER_NODE=2(x2)";
        for (inner, launcher, numbers) in [
            ("PMI_RANK=3 PMI_SIZE=4", "MPICH", [3, 4, 1, 2]),
            ("PMIX_RANK=3 WORLD_SIZE=4", "Slurm", [3, 4, 1, 2]),
            ("RANK=3 WORLD_SIZE=4", "torchrun", [3, 4, 1, 2]),
            ("RANK=3 WORLD_SIZE=4 LOCAL_RANK=1", "torchrun", [3, 4, 1, 2]),
            // Another process: a launcher of the launcher.
            ("PMI_RANK=2 PMI_SIZE=4", "MPICH", [2, 4, 0, 1]),
            ("PMI_RANK=3 PMI_SIZE=8", "MPICH", [3, 8, 0, 1]),
            ("RANK=3 WORLD_SIZE=4 LOCAL_RANK=0", "torchrun", [3, 4, 0, 1]),
        ] {
            let list: &'static str = format!("{inner} {slurm}").leak();
            assert_eq!(found(list), (Some(launcher), numbers), "{inner}");
        }
    }

    #[test]
    fn slurm_tells_the_tasks_of_this_node() {
        let step = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=5";
        for (more, local) in [
            ("SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=3,2", [0, 2]),
            ("SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_STEP_TASKS_PER_NODE=2(x2),1", [0, 1]),
            ("SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=5", [1, 5]),
            // The job asked for one a node, the step runs five on one: nobody dies of it.
            ("SLURM_LOCALID=4 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=5 SLURM_NTASKS_PER_NODE=1", [4, 5]),
            ("SLURM_LOCALID=4 SLURM_NTASKS_PER_NODE=1", [4, 5]),
            ("SLURM_LOCALID=1 SLURM_NTASKS_PER_NODE=8", [1, 5]),
            ("SLURM_LOCALID=1 SLURM_NTASKS_PER_NODE=3", [1, 3]),
            ("SLURM_LOCALID=1 SLURM_NODEID=7 SLURM_STEP_TASKS_PER_NODE=3,2", [1, 2]),
            ("SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=(x", [1, 2]),
        ] {
            let list: &'static str = format!("{step} SLURM_NTASKS=9 {more}").leak();
            assert_eq!(found(list), (Some("Slurm"), [1, 5, local[0], local[1]]), "{more}");
        }
    }

    #[test]
    fn slurm_is_trusted_inside_srun_only() {
        for step in ["", "SLURM_STEP_ID=4294967291", "SLURM_STEP_ID=4294967290", "SLURM_STEP_ID=batch"] {
            let list: &'static str = format!("SLURM_PROCID=0 SLURM_NTASKS=8 {step}").leak();
            assert_eq!(found(list), (None, [0, 1, 0, 1]), "{list}");
        }
    }

    #[test]
    fn lightnings_own_processes_have_the_rank_that_follows_from_the_node() {
        for (list, numbers) in [
            ("WORLD_SIZE=4 LOCAL_RANK=0 NODE_RANK=0", [0, 4, 0, 4]),
            ("WORLD_SIZE=4 LOCAL_RANK=3 NODE_RANK=0", [3, 4, 3, 4]),
            ("WORLD_SIZE=4 LOCAL_RANK=1 NODE_RANK=1 LOCAL_WORLD_SIZE=2", [3, 4, 1, 2]),
            ("WORLD_SIZE=4 LOCAL_RANK=1 NODE_RANK=1 NNODES=2", [3, 4, 1, 2]),
            ("WORLD_SIZE=4 LOCAL_RANK=1 NODE_RANK=0 NNODES=2", [1, 4, 1, 2]),
        ] {
            assert_eq!(found(list), (Some("Lightning"), numbers), "{list}");
        }
        let second = "WORLD_SIZE=4 LOCAL_RANK=1 NODE_RANK=1";
        let refused = |list: &'static str| find(&vars(list)).unwrap_err().to_string();
        assert!(refused(second).contains("LOCAL_WORLD_SIZE"), "{}", refused(second));
        // Slurm speaks of another process, or of this one.
        let slurm = |world: u32| -> &'static str {
            format!("{second} SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_NTASKS={world}").leak()
        };
        assert!(refused(slurm(5)).contains("LOCAL_WORLD_SIZE"));
        assert_eq!(found(slurm(4)).1[..2], [3, 4]);
        assert!(refused("WORLD_SIZE=4 LOCAL_RANK=4 NODE_RANK=0").contains("is 4"));
    }

    #[test]
    fn half_of_a_pair_alone_is_refused_with_what_to_add() {
        for (list, wants) in [
            ("RANK=3", ["RANK is 3", "WORLD_SIZE"]),
            ("RANK=0", ["RANK is 0", "WORLD_SIZE"]),
            ("WORLD_SIZE=8", ["WORLD_SIZE is 8", "set RANK"]),
            ("WORLD_SIZE=8 LOCAL_RANK=1", ["WORLD_SIZE is 8", "set RANK"]),
            ("GLOBAL_RANK=2", ["GLOBAL_RANK is 2", "WORLD_SIZE"]),
            ("JOB_COMPLETION_INDEX=2", ["JOB_COMPLETION_INDEX is 2", r#"- {name: WORLD_SIZE, value: "4"}"#]),
            ("PMIX_RANK=1", ["PMIX_RANK is 1", "WORLD_SIZE"]),
            ("PMI_RANK=1", ["PMI_RANK is 1", "PMI_SIZE"]),
            ("NODE_RANK=1", ["NODE_RANK is 1", "WORLD_SIZE"]),
            ("PMI_SIZE=2", ["PMI_SIZE is 2", "set PMI_RANK"]),
            ("AWS_BATCH_JOB_NODE_INDEX=1", ["NODE_INDEX is 1", "AWS_BATCH_JOB_NUM_NODES"]),
        ] {
            let error = find(&vars(list)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{list}");
            for want in wants {
                assert!(error.to_string().contains(want), "{list}: {error}");
            }
        }
        for list in
            ["NODE_RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=1", "SM_CURRENT_HOST=a", "SLURM_STEP_ID=0", "PMI_SIZE=1"]
        {
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
            ("GLOBAL_RANK=9 NNODES=4000000000 LOCAL_WORLD_SIZE=8", "too many"),
            ("WORLD_SIZE=8 LOCAL_RANK=0 NODE_RANK=4000000000 LOCAL_WORLD_SIZE=8", "too many"),
            ("SLURM_PROCID=z SLURM_NTASKS=2 SLURM_STEP_ID=0", "SLURM_PROCID is"),
            ("SM_HOSTS=algo-1 SM_CURRENT_HOST=algo-1", "SM_HOSTS is"),
            (r#"SM_HOSTS=["algo-1"] SM_CURRENT_HOST=algo-2"#, r#"current host "algo-2""#),
            ("JOB_COMPLETION_INDEX=4 WORLD_SIZE=4", "JOB_COMPLETION_INDEX is 4"),
        ] {
            let error = Shard::from_vars(vars(list)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{list}");
            assert!(error.to_string().contains(want), "{list}: {error}");
        }
    }

    #[test]
    fn sagemaker_without_its_toolkit_tells_hosts_in_a_file() {
        let root = tempfile::tempdir().unwrap();
        let base = format!("SAGEMAKER_BASE_DIR={}", root.path().display());
        let base: &'static str = base.leak();
        assert_eq!(found(base), (None, [0, 1, 0, 1]));
        let write = |dir: &str, text: &str| {
            fs::create_dir_all(root.path().join(dir)).unwrap();
            fs::write(root.path().join(dir).join("resourceconfig.json"), text).unwrap();
        };
        // A processing job, then a training job.
        write("config", r#"{"current_host":"algo-1","hosts":["algo-1","algo-2"]}"#);
        assert_eq!(found(base), (Some("SageMaker"), [0, 2, 0, 1]));
        write(
            "input/config",
            r#"{"current_host":"algo-3","current_instance_type":"ml.p4d.24xlarge","hosts":["algo-1","algo-2","algo-3"],
                "network_interface_name":"eth0"}"#,
        );
        assert_eq!(found(base), (Some("SageMaker"), [2, 3, 0, 1]));
        let told = find(&vars(base)).unwrap().variables;
        assert!(told.len() == 1 && told[0].ends_with("input/config/resourceconfig.json"), "{told:?}");
        // What an inner launcher says wins, and the file is not even read.
        write("input/config", "{");
        let inner: &'static str = format!("{base} RANK=1 WORLD_SIZE=2").leak();
        assert_eq!(found(inner).0, Some("torchrun"));
        let error = find(&vars(base)).unwrap_err().to_string();
        assert!(error.contains("resourceconfig.json"), "{error}");
        write("input/config", r#"{"current_host":"x","hosts":["y"]}"#);
        assert!(find(&vars(base)).is_err());
    }

    #[test]
    fn a_task_of_an_array_is_a_rank_for_those_who_ask() {
        let slurm = "SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=9 SLURM_ARRAY_TASK_STEP=2 \
                     SLURM_ARRAY_TASK_COUNT=5";
        let step: &'static str =
            format!("{slurm} SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1").leak();
        for (list, launcher, of) in [
            (slurm, Some("Slurm array"), [3, 5, 0, 1]),
            (step, Some("Slurm"), [7, 10, 1, 2]),
            ("AWS_BATCH_JOB_ARRAY_INDEX=3 AWS_BATCH_JOB_ARRAY_SIZE=4", Some("AWS Batch array"), [3, 4, 0, 1]),
            (
                "SGE_TASK_ID=4 SGE_TASK_FIRST=1 SGE_TASK_LAST=4 SGE_TASK_STEPSIZE=1",
                Some("Grid Engine array"),
                [3, 4, 0, 1],
            ),
            ("SGE_TASK_ID=undefined SGE_TASK_FIRST=undefined", None, [0, 1, 0, 1]),
            ("BATCH_TASK_INDEX=0 BATCH_TASK_COUNT=2", Some("Google Batch"), [0, 2, 0, 1]),
            ("CLOUD_RUN_TASK_INDEX=1 CLOUD_RUN_TASK_COUNT=2", Some("Google Cloud Run"), [1, 2, 0, 1]),
            ("JOB_COMPLETION_INDEX=1 WORLD_SIZE=2", Some("Kubernetes"), [1, 2, 0, 1]),
            ("LSB_JOBINDEX=0", None, [0, 1, 0, 1]),
            ("", None, [0, 1, 0, 1]),
        ] {
            let launch = find_in_array(&vars(list)).unwrap_or_else(|error| panic!("{list}: {error}"));
            assert_eq!(numbers(&launch), (launcher, of), "{list}");
        }
        assert_eq!(found(slurm), (None, [0, 1, 0, 1]), "a training run in an array is a job of its own");
        for (list, want) in [
            ("PBS_ARRAY_INDEX=0", "PBS_ARRAY_INDEX is 0"),
            ("PBS_ARRAYID=2", "PBS_ARRAYID is 2"),
            ("LSB_JOBINDEX=2", "LSB_JOBINDEX is 2"),
            ("AWS_BATCH_JOB_ARRAY_INDEX=4 AWS_BATCH_JOB_ARRAY_SIZE=4", "AWS_BATCH_JOB_ARRAY_INDEX"),
            (
                "SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=7 SLURM_ARRAY_TASK_COUNT=3",
                "SLURM_ARRAY_TASK_ID is 3",
            ),
            ("SLURM_ARRAY_TASK_ID=3", "SLURM_ARRAY_TASK_ID is 3"),
            // `sbatch --array=2` for a task that was lost.
            (
                "SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_TASK_MIN=2 SLURM_ARRAY_TASK_MAX=2 SLURM_ARRAY_TASK_COUNT=1",
                "scontrol requeue",
            ),
        ] {
            let error = find_in_array(&vars(list)).unwrap_err().to_string();
            assert!(error.contains(want), "{list}: {error}");
        }
    }
}
