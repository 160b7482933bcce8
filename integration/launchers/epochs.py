"""Rows: the same epoch under each launcher."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

from bench import EPOCH, HERE, OPEN_MPI, Bench, Done, Outcome, Places, Row, wait_for
from cluster import free_ports

BLOCK: Places = ((0, 1), (2, 3))
CYCLIC: Places = ((0, 2), (1, 3))
# A node for each.
APART: Places = ((0,), (1,), (2,), (3,))


def launched(
    name: str, launcher: str, command: str, told: str | None, places: Places, *, needs: tuple[str, ...], truth: str = "",
    node: str = "", env: dict[str, str] | None = None, options: tuple[str, ...] = EPOCH,
) -> Row:  # fmt: skip
    """A launcher that takes the command of a rank behind its own; {python} and {port} stand for those."""

    def run(bench: Bench) -> Outcome:
        folder = bench.new(launcher.replace(" ", "-"))
        words = command.format(python=bench.python, port=free_ports(1)[0], programs=HERE / "programs", scratch=folder).split()
        done = bench.call(*words, *bench.rank(folder, *options), env=env)
        return bench.judge(folder, told, places, done=done, truth=truth, node=node)

    return Row(name, launcher, run, needs)


def srun(name: str, command: str, places: Places, *, told: str = "Slurm", needs: str = "slurm",
         env: dict[str, str] | None = None) -> Row:  # fmt: skip
    return launched(name, "Slurm", command, told, places, needs=(needs,), truth="SLURM_PROCID", node="SLURM_NODEID", env=env)


def nodes_of(bench: Bench, folder: Path, commands: list[tuple[list[object], dict[str, str]]]) -> Done:
    """One command for each node, at the same time; the worst of what they say."""
    processes = [bench.start(*command, env=env) for command, env in commands]
    return max((bench.finish(process) for process in processes), key=lambda done: abs(done.code))


def torchrun_on_two_nodes(bench: Bench) -> Outcome:
    folder, port = bench.new("torchrun"), free_ports(1)[0]
    commands: list[tuple[list[object], dict[str, str]]] = [
        ([bench.python, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2",
          "--master-addr=127.0.0.1", f"--master-port={port}", "--no-python", *bench.rank(folder, *EPOCH)], {})
        for node in range(2)
    ]  # fmt: skip
    return bench.judge(folder, "torchrun", BLOCK, done=nodes_of(bench, folder, commands), truth="RANK", node="GROUP_RANK")


def lightning_on_two_nodes(bench: Bench, more: dict[str, str]) -> tuple[Path, Done]:
    folder, port = bench.new("lightning"), free_ports(1)[0]
    command = [bench.python, HERE / "programs/lightning_ddp.py", 2, 2, *bench.rank(folder, *EPOCH)]
    by_node = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **more}
    commands = [(command, {**by_node, "NODE_RANK": str(node)}) for node in range(2)]
    return folder, nodes_of(bench, folder, commands)


def lightning_says_how_many(bench: Bench) -> Outcome:
    folder, done = lightning_on_two_nodes(bench, {"LOCAL_WORLD_SIZE": "2"})
    return bench.judge(folder, "Lightning", BLOCK, done=done, node="NODE_RANK")


def lightning_does_not(bench: Bench) -> Outcome:
    """The second node's processes can't know their ranks, so the job has to end."""
    folder, _ = lightning_on_two_nodes(bench, {})
    second = [path for path in folder.glob("*.env") if "NODE_RANK=1" in path.read_text().splitlines()]
    told = [path.with_suffix(".words").read_text().strip().splitlines() for path in second]
    read = [lines for lines in told if lines[-1] == "exit 0"]
    outcome = Outcome(ranks=len(told), nodes=2, told="refused" if told and not read else "not refused")
    if not told or read:
        outcome.wrong.append("an error on the second node, not a process that reads what is not its own")
    elif not all("LOCAL_WORLD_SIZE" in "".join(lines) for lines in told):
        outcome.wrong.append("it says 'LOCAL_WORLD_SIZE'")
    outcome.note = " ".join(told[0][:1]) if told else ""
    return outcome


def dask(kind: str, told: str | None, note: str) -> Row:
    def run(bench: Bench) -> Outcome:
        folder = bench.new("dask")
        scheduler = folder / "scheduler.file"
        common = ("--scheduler-file", scheduler)
        alone = bench.start(bench.python, "-m", "distributed.cli.dask_scheduler", *common, "--host", "127.0.0.1", "--port", 0,
                            "--no-dashboard")  # fmt: skip
        wait_for(lambda: scheduler.exists() and scheduler.stat().st_size)
        workers = bench.start("srun", "-N2", "-n4", "--ntasks-per-node=2", bench.python, "-m", "distributed.cli.dask_worker",
                              *common, "--nthreads", 1, "--no-nanny", "--no-dashboard", "--local-directory", folder)  # fmt: skip
        done = bench.call(bench.python, HERE / "programs/dask_ranks.py", kind, scheduler, 4, *bench.rank(folder, *EPOCH))
        bench.finish(workers, 60)
        bench.finish(alone, 60)
        places = BLOCK if kind == "inherit" else APART
        outcome = bench.judge(folder, told, places, done=done, truth="SLURM_PROCID" if kind == "inherit" else "")
        outcome.note = note
        return outcome

    return Row(f"Dask: workers under srun, tasks {'that inherit' if kind == 'inherit' else 'given ranks'}", "Dask", run,
               ("slurm", "py:distributed"))  # fmt: skip


def smaller_step(bench: Bench) -> Outcome:
    """A step of two tasks in a job of four: the job's numbers are not its own."""
    folder = bench.new("step")
    script = folder / "job.sh"
    script.write_text('#!/bin/sh\nexec srun -N2 -n2 "$@"\n')
    nodes = ("-N2", "-n4", "--ntasks-per-node=2")
    done = bench.sbatch("-o", folder / "out", *nodes, script, *bench.rank(folder, *EPOCH))
    return bench.judge(folder, "Slurm", ((0,), (1,)), done=done, truth="SLURM_PROCID", node="SLURM_NODEID")


def array_of_runs(bench: Bench) -> Outcome:
    """Each task of an array is a job of its own: three whole epochs."""
    folder = bench.new("array")
    script = folder / "job.sh"
    script.write_text('#!/bin/sh\nexec "$@"\n')
    done = bench.sbatch("-o", folder / "out", "--array=0-2", "-n1", script, *bench.rank(folder, *EPOCH))
    reports = bench.reports(folder)
    outcome = Outcome(ranks=len(reports), nodes=2, told=", ".join({str(r["config"].get("launcher")) for r in reports}))
    ranks = [(report["config"]["rank"], report["config"]["world_size"]) for report in reports]
    if done.code or ranks != [(0, 1)] * 3:
        outcome.wrong.append(f"three of rank 0 of 1, not {ranks} (exit {done.code})")
    bench.add_up(outcome, reports, 3 * bench.whole % 2**128)
    return outcome


def stepped(bench: Bench, folder: Path, ranks: int, *options: object) -> list[object]:
    """srun of so many ranks, each with a state of its own: written, or gone on from where RESUME is set."""
    script = folder / "rank-of-step.sh"
    script.write_text(
        '#!/bin/sh\n# A rank that is new has no state of its own: it begins with that of rank 0.\n'
        'state=$STATES/$SLURM_PROCID; [ -e "$state" ] || state=$STATES/0\n'
        'case $RESUME in\n    "") set -- "$@" --state "$STATES/$SLURM_PROCID" --log-every 1 ;;\n'
        '    *) set -- "$@" --resume "$state" ;;\nesac\n'
        'exec "$@"\n'
    )  # fmt: skip
    script.chmod(0o755)
    nodes = min(2, ranks)
    return ["srun", f"-N{nodes}", f"-n{ranks}", "--kill-on-bad-exit=1", script, *bench.rank(folder, *EPOCH, *options)]


def killed_rank(bench: Bench) -> Outcome:
    """Rank 2 is killed in the middle of an epoch; all begin again where the last checkpoint of all is."""
    states = bench.new("states")
    first = bench.new("first")
    bench.must(*stepped(bench, first, 4, "--max-batches", 5), env={"STATES": str(states), "RESUME": ""})
    lost = bench.new("lost")
    # Each rank has 7 batches left: 12 s from the first on, in which the kill falls.
    slowly = stepped(bench, lost, 4, "--step-time", "2s", "--log-every", 1)
    job = bench.start(*slowly, env={"STATES": str(states), "RESUME": "1"})

    def in_its_midst() -> bool:
        of_rank_2 = [path for path in lost.glob("*.env") if "SLURM_PROCID=2" in path.read_text().splitlines()]
        words = [path.with_suffix(".words") for path in of_rank_2]
        return any(path.exists() and "Epoch [" in path.read_text() for path in words)

    wait_for(in_its_midst)
    victim = bench.process_of(str(lost), ("SLURM_PROCID", "2"))
    assert victim, "it was there"
    os.kill(victim, signal.SIGKILL)
    ended = bench.finish(job)
    again = bench.new("again")
    done = bench.call(*stepped(bench, again, 4), env={"STATES": str(states), "RESUME": "1"})
    outcome = bench.judge(again, "Slurm", ((0, 1, 2), (3,)), done=done, truth="SLURM_PROCID")
    if not ended.code:
        outcome.wrong.append("the job of the killed rank ends with an error")
    if len(bench.reports(lost)) == 4:
        outcome.wrong.append("a rank that was killed has written no figures")
    return outcome


def another_world(bench: Bench) -> Outcome:
    """Four ranks stop after 5 batches each; three go on. The fourth's sum is that of its state."""
    states = bench.new("states")
    first = bench.new("first")
    bench.must(*stepped(bench, first, 4, "--max-batches", 5), env={"STATES": str(states), "RESUME": ""})
    gone = int(json.loads((states / "3").read_text())["checksum"], 16)
    rest = bench.new("rest")
    done = bench.call(*stepped(bench, rest, 3), env={"STATES": str(states), "RESUME": "1"})
    whole = (bench.whole - gone) % 2**128
    return bench.judge(rest, "Slurm", ((0, 1), (2,)), done=done, truth="SLURM_PROCID", whole=whole)


def hosts_of(bench: Bench, under: str, names: tuple[str, ...] = ("algo-1", "algo-2")) -> list[Path]:
    """Folders as SageMaker mounts them on each host, with its list of hosts in `under`."""
    roots = []
    for name in names:
        root = bench.new(name)
        config = root / under
        config.mkdir(parents=True)
        told = {"current_host": name, "hosts": names, "current_instance_type": "local", "network_interface_name": "lo"}
        (config / "resourceconfig.json").write_text(json.dumps(told))
        roots.append(root)
    return roots


def sagemaker(name: str, under: str) -> Row:
    def run(bench: Bench) -> Outcome:
        folder = bench.new("sagemaker")
        commands = [(bench.rank(folder, *EPOCH), {"SAGEMAKER_BASE_DIR": str(root)}) for root in hosts_of(bench, under)]
        done = nodes_of(bench, folder, [(list(command), env) for command, env in commands])
        return bench.judge(folder, "SageMaker", ((0,), (1,)), done=done)

    return Row(name, "files", run)


def sagemaker_spot(bench: Bench, fast: bool) -> Outcome:
    """A spot job loses its two hosts in the midst of an epoch; three go on from the checkpoint that SageMaker kept."""

    def hosts(*names: str) -> list[Path]:
        roots = hosts_of(bench, "input/config", names)
        for root in roots:
            told = {"TrainingInputMode": "FastFile" if fast else "File", "S3DistributionType": "FullyReplicated"}
            (root / "input/config/inputdataconfig.json").write_text(json.dumps({"train": told}))
            (root / "input/data").mkdir()
            # FastFile is a mount of the objects, File a copy of them on each host.
            (root / "input/data/train").symlink_to(bench.data) if fast else shutil.copytree(bench.data, root / "input/data/train")
            (root / "checkpoints").mkdir()
        return roots

    def rank(folder: Path, root: Path, *options: object) -> tuple[list[object], dict[str, str]]:
        command = [HERE / "rank.sh", folder, bench.infeed, "run", root / "input/data/train", *EPOCH, *options]
        return command, {"SAGEMAKER_BASE_DIR": str(root)}

    taken, kept = bench.new("taken"), "checkpoints/infeed.json"
    one, two = hosts("algo-1", "algo-2")
    command, env = rank(taken, one, "--step-time", "200ms", "--log-every", 1, "--state", one / kept)
    job = bench.start(*command, env=env)
    wait_for(lambda: any("Epoch [" in path.read_text() for path in taken.glob("*.words")))
    victim = bench.process_of(str(one))
    assert victim, "it was there"
    os.kill(victim, signal.SIGTERM)
    ended = bench.finish(job)
    state = json.loads((one / kept).read_text())
    # Hosts of a job take their steps together: the other one has done as many.
    command, env = rank(taken, two, "--max-batches", state["samples"] // 25, "--state", two / kept)
    bench.must(*command, env=env)
    other = json.loads((two / kept).read_text())
    rest = bench.new("rest")
    roots = hosts("algo-1", "algo-2", "algo-3")
    for root in roots:
        shutil.copy(one / kept, root / kept)
    done = nodes_of(bench, rest, [rank(rest, root, "--resume", root / kept) for root in roots])
    # The first goes on with the sum of its own state; that of the second is in its state alone.
    sums = [int(it["checksum"], 16) for it in (state, other)]
    outcome = bench.judge(rest, "SageMaker", ((0,), (1,), (2,)), done=done, whole=(bench.whole - sums[1]) % 2**128)
    if ended.code != 128 + signal.SIGTERM:
        outcome.wrong.append(f"a host that is asked to end says so by 143, not {ended.code}")
    if state["state"] != other["state"]:
        outcome.wrong.append("both hosts have the same state behind the same step")
    return outcome


def sagemaker_toolkit(bench: Bench) -> Outcome:
    """The toolkit's `train` on two hosts, whose user script is the command of a rank."""
    folder = bench.new("toolkit")
    commands: list[tuple[list[object], dict[str, str]]] = []
    # Names that are known here: it looks each of them up, for a quarter of an hour if need be.
    for root in hosts_of(bench, "input/config", ("localhost", "127.0.0.1")):
        code = root / "code"
        code.mkdir()
        for made in ("model", "output/data", "input/data/train"):
            (root / made).mkdir(parents=True)
        (code / "train.sh").write_text("#!/bin/sh\nexec " + " ".join(bench.rank(folder, *EPOCH)) + "\n")
        (code / "train.sh").chmod(0o755)
        channel = {"train": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}}
        told = {"sagemaker_program": json.dumps("train.sh"), "sagemaker_submit_directory": json.dumps(str(code))}
        (root / "input/config/hyperparameters.json").write_text(json.dumps(told))
        (root / "input/config/inputdataconfig.json").write_text(json.dumps(channel))
        start = "import sys; from sagemaker_training.cli.train import main; sys.exit(main())"
        env = {"SAGEMAKER_BASE_DIR": str(root), "PATH": f"{Path(bench.python).parent}:{bench.base['PATH']}"}
        commands.append(([bench.python, "-c", start], env))
    done = nodes_of(bench, folder, commands)
    outcome = bench.judge(folder, "SageMaker", ((0,), (1,)), done=done)
    variables = {name for report in bench.reports(folder) for name in report["config"].get("launcher_variables") or []}
    if variables and not variables <= {"SM_HOSTS", "SM_CURRENT_HOST"}:
        outcome.wrong.append(f"told by the toolkit's variables, not by {variables}")
    return outcome


def simulated(name: str, told: str, variables: list[dict[str, str]]) -> Row:
    """The environment of a service that can't be had here, as it is documented: each process is given its variables."""

    def run(bench: Bench) -> Outcome:
        folder = bench.new("simulated")
        done = nodes_of(bench, folder, [(list(bench.rank(folder, *EPOCH)), env) for env in variables])
        return bench.judge(folder, told, [(rank,) for rank in range(len(variables))], done=done)

    return Row(name, "variables", run)


def refused(name: str, env: dict[str, str], *says: str) -> Row:
    return Row(f"refused: {name}", "variables", lambda bench: bench.refused(env, *says))


TORCHRUN = "{python} -m torch.distributed.run --nproc-per-node=2 --master-port={port} --no-python"
ACCELERATE = (
    "{python} -m accelerate.commands.launch --num_machines 1 --mixed_precision no --dynamo_backend no "
    "--main_process_port {port}"
)
KUBELET = [{"JOB_COMPLETION_INDEX": str(index), "WORLD_SIZE": "4"} for index in range(4)]
BATCH = [
    {"AWS_BATCH_JOB_ID": "a", "AWS_BATCH_JOB_MAIN_NODE_INDEX": "0", "AWS_BATCH_JOB_NODE_INDEX": str(node),
     "AWS_BATCH_JOB_NUM_NODES": "3"} for node in range(3)
]  # fmt: skip

ROWS = [
    launched("4 ranks", "Open MPI", "mpirun.openmpi --oversubscribe -np 4", "Open MPI", ((0, 1, 2, 3),),
             needs=("mpirun.openmpi",), truth="OMPI_COMM_WORLD_RANK", env=OPEN_MPI),
    launched("2 nodes of Slurm", "Open MPI", "salloc -N2 -n4 --ntasks-per-node=2 mpirun.openmpi", "Open MPI", BLOCK,
             needs=("mpirun.openmpi", "slurm"), truth="OMPI_COMM_WORLD_RANK", node="SLURM_NODEID", env=OPEN_MPI),
    launched("2 nodes of Slurm, --map-by node", "Open MPI", "salloc -N2 -n4 --ntasks-per-node=2 mpirun.openmpi --map-by node",
             "Open MPI", CYCLIC, needs=("mpirun.openmpi", "slurm"), truth="OMPI_COMM_WORLD_RANK", node="SLURM_NODEID",
             env=OPEN_MPI),
    launched("4 ranks", "MPICH", "mpiexec.mpich -n 4", "MPICH", ((0, 1, 2, 3),), needs=("mpiexec.mpich",), truth="PMI_RANK"),
    launched("2 hosts", "MPICH", "mpiexec.mpich -launcher fork -hosts localhost,127.0.0.1 -ppn 2 -n 4", "MPICH", BLOCK,
             needs=("mpiexec.mpich",), truth="PMI_RANK", node="MPIR_CVAR_CH3_INTERFACE_HOSTNAME"),
    launched("2 hosts, one after another", "MPICH", "mpiexec.mpich -launcher fork -hosts localhost,127.0.0.1 -ppn 1 -n 4",
             "MPICH", CYCLIC, needs=("mpiexec.mpich",), truth="PMI_RANK", node="MPIR_CVAR_CH3_INTERFACE_HOSTNAME"),
    launched("2 nodes of Slurm", "MPICH", "salloc -N2 -n4 --ntasks-per-node=2 mpiexec.mpich -n 4", "MPICH", BLOCK,
             needs=("mpiexec.mpich", "slurm"), truth="PMI_RANK", node="SLURM_NODEID"),
    srun("2 nodes, block", "srun -N2 -n4 --ntasks-per-node=2", BLOCK),
    srun("2 nodes, cyclic", "srun -N2 -n4 --ntasks-per-node=2 -m cyclic", CYCLIC),
    srun("3 and 1", "srun -N2 -n4 -m plane=3", ((0, 1, 2), (3,))),
    srun("3 and 1, cyclic", "srun -N2 -n4 -m cyclic", ((0, 2, 3), (1,))),
    srun("--mpi=pmi2", "srun --mpi=pmi2 -N2 -n4 --ntasks-per-node=2", BLOCK, told="MPICH"),
    srun("--mpi=pmi2, cyclic", "srun --mpi=pmi2 -N2 -n4 --ntasks-per-node=2 -m cyclic", CYCLIC, told="MPICH"),
    srun("--mpi=pmix", "srun --mpi=pmix -N2 -n4 --ntasks-per-node=2", BLOCK, needs="slurm:pmix"),
    srun("a stale SLURM_NTASKS_PER_NODE=1", "srun -N2 -n4", ((0, 1, 2), (3,)), env={"SLURM_NTASKS_PER_NODE": "1"}),
    srun("a stale SLURM_NTASKS_PER_NODE=8", "srun -N2 -n4", ((0, 1, 2), (3,)), env={"SLURM_NTASKS_PER_NODE": "8"}),
    srun("a stale WORLD_SIZE=8", "srun -N2 -n4 --ntasks-per-node=2", BLOCK, env={"WORLD_SIZE": "8"}),
    srun("two components, 1 : 2", "srun -N1 -n1 : -N1 -n2", ((0,), (1, 2))),
    Row("a step of 2 in a job of 4", "Slurm", smaller_step, ("slurm",)),
    launched("the shell of salloc is no task", "Slurm", "salloc -N2 -n4", None, ((0,),), needs=("slurm",)),
    Row("array: each task a run of its own", "Slurm", array_of_runs, ("slurm",)),
    Row("a killed rank, and all again", "Slurm", killed_rank, ("slurm",)),
    Row("resumed by 3 of 4 ranks", "Slurm", another_world, ("slurm",)),
    launched("2 processes", "torchrun", TORCHRUN, "torchrun", ((0, 1),), needs=("py:torch",), truth="RANK"),
    Row("2 nodes", "torchrun", torchrun_on_two_nodes, ("py:torch",)),
    launched("under srun, one for each node", "torchrun",
             "srun -N2 -n2 --ntasks-per-node=1 {python} -m torch.distributed.run --nnodes=2 --nproc-per-node=2 "
             "--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{port} --rdzv-id=a --local-addr=127.0.0.1 --no-python", "torchrun",
             BLOCK, needs=("py:torch", "slurm"), truth="RANK", node="GROUP_RANK"),
    launched("2 processes", "accelerate", ACCELERATE + " --multi_gpu --num_processes 2 {programs}/one_rank.py", "torchrun",
             ((0, 1),), needs=("py:accelerate",), truth="RANK"),
    launched("--cpu starts one, whatever --num_processes", "accelerate",
             ACCELERATE + " --cpu --num_processes 2 {programs}/one_rank.py", None, ((0,),), needs=("py:accelerate",)),
    launched("ddp, 2 processes", "Lightning", "{python} {programs}/lightning_ddp.py 1 2", "Lightning", ((0, 1),),
             needs=("py:lightning",), truth="LOCAL_RANK"),
    Row("ddp, 2 nodes, LOCAL_WORLD_SIZE said", "Lightning", lightning_says_how_many, ("py:lightning",)),
    Row("refused: ddp, 2 nodes, nobody says how many a node has", "Lightning", lightning_does_not, ("py:lightning",)),
    launched("ddp under srun", "Lightning", "srun -N2 -n4 --ntasks-per-node=2 {python} {programs}/lightning_ddp.py 2 2",
             "Slurm", BLOCK, needs=("py:lightning", "slurm"), truth="SLURM_PROCID", node="SLURM_NODEID",
             env={"MASTER_ADDR": "127.0.0.1"}),
    launched("4 tasks, given ranks", "Ray", "{python} {programs}/ray_ranks.py ranked 4 {scratch}", None, APART,
             needs=("py:ray",)),
    launched("Ray Train, 2 workers", "Ray", "{python} {programs}/ray_ranks.py train 2 {scratch}", "torchrun", ((0, 1),),
             needs=("py:ray", "py:torch"), truth="RANK"),
    dask("inherit", "Slurm", "a worker's rank is its tasks', right only for one task a worker at a time"),
    dask("ranked", None, ""),
    Row("toolkit, 2 hosts", "SageMaker", sagemaker_toolkit, ("py:sagemaker-training",)),
    sagemaker("SageMaker training without the toolkit, 2 hosts", "input/config"),
    sagemaker("SageMaker processing, 2 hosts", "config"),
    Row("SageMaker spot: File, SIGTERM, 2 hosts, then 3", "files", lambda bench: sagemaker_spot(bench, False)),
    Row("SageMaker spot: FastFile, SIGTERM, 2 hosts, then 3", "files", lambda bench: sagemaker_spot(bench, True)),
    simulated("Kubernetes, indexed job of 4 (environment as kubelet sets it)", "Kubernetes", KUBELET),
    simulated("AWS Batch, 3 nodes (environment as documented)", "AWS Batch", BATCH),
    refused("Kubernetes index without WORLD_SIZE", {"JOB_COMPLETION_INDEX": "2"}, "JOB_COMPLETION_INDEX", "WORLD_SIZE"),
    refused("WORLD_SIZE=4 without a rank", {"WORLD_SIZE": "4"}, "WORLD_SIZE is 4", "RANK"),
    refused("RANK=1 without a world", {"RANK": "1"}, "RANK is 1", "WORLD_SIZE"),
    refused("Lightning's variables at NODE_RANK=1", {"WORLD_SIZE": "4", "LOCAL_RANK": "0", "NODE_RANK": "1"},
            "NODE_RANK", "LOCAL_WORLD_SIZE"),
    refused("AWS Batch, a node without their number", {"AWS_BATCH_JOB_NODE_INDEX": "1"}, "AWS_BATCH_JOB_NUM_NODES"),
]  # fmt: skip
