"""Rows: the recipes of `examples/`, run as they are where their launcher is here; else their requests and manifests checked."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import EPOCH, HERE, OPEN_MPI, ROOT, Bench, Done, Outcome, Row
from cluster import free_ports
from epochs import hosts_of
from packing import SETTINGS, compare

EXAMPLES = ROOT / "examples"
DDP = ROOT / "python/examples/ddp_torch.py"
TRAINED = "synthetic://?count=240&height=40&width=40&classes=10"


def each_once(done: Done, ranks: int, nodes: int, words: str) -> Outcome:
    """The program says of two epochs that the ranks saw each record once."""
    outcome = Outcome(ranks=ranks, nodes=nodes)
    seen = re.findall(r"epoch (\d+): (\d+) records.*each once: (\w+)", words)
    outcome.sums = "equal" if seen and all(once == "True" for _, _, once in seen) else "other"
    if done.code or [epoch for epoch, _, _ in seen] != ["0", "1"] or outcome.sums != "equal":
        outcome.wrong.append(f"two epochs of each record once, not {seen} (exit {done.code}): {words.strip()[-300:]}")
    outcome.note = "records counted by the program, each once"
    return outcome


def on_path(bench: Bench, env: dict[str, str] | None = None) -> dict[str, str]:
    """python and torchrun of that environment, and infeed, by the names that recipes use."""
    tools = bench.folder / "tools"
    if not tools.exists():
        tools.mkdir()
        (tools / "infeed").symlink_to(bench.infeed)
    return {"PATH": f"{tools}:{Path(bench.python).parent}:{bench.base['PATH']}", **(env or {})}


def sbatch(script: str, ranks: int, *words: object) -> Callable[[Bench], Outcome]:
    def run(bench: Bench) -> Outcome:
        folder = bench.new("sbatch")
        # The nodes' names are known to Slurm alone here, which is one machine.
        env = on_path(bench, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])})
        done = bench.sbatch("-o", folder / "out", EXAMPLES / "slurm" / script, *words, env=env)
        return each_once(done, ranks, 2, (folder / "out").read_text(errors="replace"))

    return run


def train_sbatch_of_the_binary(bench: Bench) -> Outcome:
    """What train.sbatch sets for torch, infeed takes; the rest it takes from Slurm."""
    folder = bench.new("sbatch")
    env = on_path(bench, {"MASTER_ADDR": "127.0.0.1"})
    done = bench.sbatch("-o", folder / "out", EXAMPLES / "slurm/train.sbatch", *bench.rank(folder, *EPOCH), env=env)
    return bench.judge(folder, "torchrun", ((0, 1), (2, 3)), done=done, truth="SLURM_PROCID", node="SLURM_NODEID")


def mpi(mpirun: str) -> Callable[[Bench], Outcome]:
    def run(bench: Bench) -> Outcome:
        env = on_path(bench, {**OPEN_MPI, "MPIRUN": mpirun, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])})
        done = bench.call(EXAMPLES / "mpi/run.sh", "-n", 2, "--", "python", DDP, TRAINED, env=env)
        return each_once(done, 2, 1, done.words)

    return run


def ray_train(bench: Bench) -> Outcome:
    """A worker is lost in the second epoch, and both go on from the checkpoint."""
    folder = bench.new("ray")
    command = (bench.python, EXAMPLES / "ray/train.py", TRAINED, "--storage", folder / "results", "--fail")
    done = bench.call(*command, env={"RAY_TMPDIR": str(folder)})
    outcome = Outcome(ranks=2, nodes=1, note="a worker was lost in epoch 1; the rest of the epoch, each record once")
    # Ray may say what a worker printed more than once.
    seen = list(dict.fromkeys(re.findall(r"epoch (\d+): (\d+) records over 2 ranks, each once: True", done.words)))
    # Of 15 steps of 16 records each, on two ranks 8 with the checkpoint behind the fifth.
    outcome.sums = "equal" if seen == [("0", "240"), ("1", "80")] else "other"
    if done.code or outcome.sums != "equal":
        wanted = "epochs of 240 records and of the 80 that are left"
        outcome.wrong.append(f"{wanted}, not {seen} (exit {done.code}): {done.words[-300:]}")
    return outcome


def with_input(bench: Bench, text: str, *command: object) -> tuple[int, str]:
    words, env = list(map(str, command)), bench.environment()
    done = subprocess.run(words, input=text, capture_output=True, text=True, env=env, timeout=120)
    return done.returncode, done.stdout + done.stderr


def checked_request(bench: Bench, text: str, service: str, operation: str, outcome: Outcome) -> Any:
    code, words = with_input(bench, text, bench.python, HERE / "programs/check_request.py", service, operation)
    if code:
        outcome.wrong.append(f"a {operation} of {service}: {words.strip()[-300:]}")
    outcome.note = f"botocore's model of {operation}"
    return json.loads(text)


def manifests(bench: Bench, name: str, outcome: Outcome) -> list[dict[str, Any]]:
    code, words = with_input(bench, "", bench.python, HERE / "programs/check_manifest.py", EXAMPLES / "kubernetes" / name)
    if code:
        outcome.wrong.append(f"Kubernetes' schema: {words.strip()[-300:]}")
        return []
    outcome.note = "schema by kubernetes-validate"
    return json.loads(words)


def pods(manifest: dict[str, Any], count: int) -> list[tuple[list[str], dict[str, str]]]:
    """Commands and environments of a job's pods, as kubelet makes them."""
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    command = [*container["command"], *container["args"]]
    return [(command, {**env, "WORLD_SIZE": str(count), "JOB_COMPLETION_INDEX": str(index)}) for index in range(count)]


def together(bench: Bench, processes: list[tuple[list[Any], dict[str, str]]]) -> Done:
    started = [bench.start(*command, env=env) for command, env in processes]
    # What the one that failed says comes last, and is shown.
    all_done = sorted((bench.finish(process) for process in started), key=lambda done: abs(done.code))
    return Done(all_done[-1].code, "".join(done.words for done in all_done))


def kubernetes_train(bench: Bench) -> Outcome:
    outcome = Outcome(ranks=2, nodes=2)
    found = manifests(bench, "indexed-job.yaml", outcome)
    if not found:
        return outcome
    job = next(manifest for manifest in found if manifest["kind"] == "Job")
    said = {entry["name"]: entry["value"] for entry in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    port = str(free_ports(1)[0])
    here = {"python": "python", "ddp_torch.py": str(DDP), "s3://BUCKET/train": TRAINED}
    commands = [
        ([here.get(word, word) for word in command], on_path(bench, {**env, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}))
        for command, env in pods(job, 2)
    ]
    done = together(bench, commands)
    ran = each_once(done, 2, 2, done.words)
    ran.note = f"{outcome.note}; 2 pods' commands run here, each record once"
    if said["WORLD_SIZE"] != str(job["spec"]["completions"]):
        ran.wrong.append("WORLD_SIZE equals the completions")
    return ran


def kubernetes_prepare(bench: Bench) -> Outcome:
    outcome = Outcome(ranks=4, nodes=4)
    found = manifests(bench, "prepare-job.yaml", outcome)
    if not found:
        return outcome
    job = found[0]
    said = {entry["name"]: entry["value"] for entry in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    if said["WORLD_SIZE"] != str(job["spec"]["completions"]):
        outcome.wrong.append("WORLD_SIZE equals the completions")
    packed(bench, outcome, pods(job, 4))
    outcome.note += "; 4 pods' commands run here"
    return outcome


def packed(bench: Bench, outcome: Outcome, commands: list[tuple[list[str], dict[str, str]]]) -> None:
    """The commands with our data and settings in the place of theirs."""
    out = bench.new("prepare") / "out"
    with bench.store() as store:
        here = {"s3://BUCKET/raw": store.url, "s3://BUCKET/packed": str(out)}
        ours = []
        for command, env in commands:
            cut = next(n for n, word in enumerate(command) if word == "s3://BUCKET/packed") + 1
            words = [here.get(word, word) for word in command[:cut]] + list(SETTINGS)
            ours.append((words, on_path(bench, {**env, **store.environment})))
        done = together(bench, ours)
    if done.code:
        outcome.wrong.append(f"exit {done.code}: {done.words.strip()[-300:]}")
    else:
        compare(outcome, bench, out)


def batch_train(bench: Bench) -> Outcome:
    outcome = Outcome(ranks=2, nodes=2)
    job = checked_request(bench, (EXAMPLES / "aws-batch/train.json").read_text(), "batch", "RegisterJobDefinition", outcome)
    command = job["nodeProperties"]["nodeRangeProperties"][0]["container"]["command"]
    port = str(free_ports(1)[0])
    here = {"ddp_torch.py": str(DDP), "s3://BUCKET/train": TRAINED}
    words = [here.get(word, word.replace("29500", port)) for word in command]
    node = {"AWS_BATCH_JOB_NUM_NODES": "2", "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS": "127.0.0.1"}
    commands = [(words, on_path(bench, {**node, "AWS_BATCH_JOB_NODE_INDEX": str(index)})) for index in range(2)]
    done = together(bench, commands)
    ran = each_once(done, 2, 2, done.words)
    ran.wrong += outcome.wrong
    ran.note = f"{outcome.note}; 2 nodes' commands run here, each record once"
    return ran


def batch_prepare(bench: Bench) -> Outcome:
    outcome = Outcome(ranks=4, nodes=4)
    job = checked_request(bench, (EXAMPLES / "aws-batch/prepare.json").read_text(), "batch", "RegisterJobDefinition", outcome)
    array = {"AWS_BATCH_JOB_ARRAY_SIZE": "4"}
    command = job["containerProperties"]["command"]
    packed(bench, outcome, [(command, {**array, "AWS_BATCH_JOB_ARRAY_INDEX": str(index)}) for index in range(4)])
    outcome.note += "; 4 tasks' commands run here"
    return outcome


def dry_run(bench: Bench, script: str, *options: object) -> str:
    role = "arn:aws:iam::123456789012:role/infeed"
    command = (bench.python, EXAMPLES / "sagemaker" / script, "--image", "image", "--role", role, "--dry-run", *options)
    code, words = with_input(bench, "", *command)
    if code:
        raise RuntimeError(words)
    return words


def sagemaker_launch(bench: Bench) -> Outcome:
    outcome = Outcome()
    for more in ((), ("--stream", "--hosts", 4)):
        checked_request(bench, dry_run(bench, "launch.py", "--bucket", "b", *more), "sagemaker", "CreateTrainingJob", outcome)
    return outcome


def sagemaker_processing(bench: Bench) -> Outcome:
    outcome = Outcome(ranks=2, nodes=2)
    options = ("--url", "s3://BUCKET/raw", "--out", "s3://BUCKET/packed", "--", "--shorter", "256")
    job = checked_request(bench, dry_run(bench, "processing.py", *options), "sagemaker", "CreateProcessingJob", outcome)
    container = job["AppSpecification"]
    command = [*container["ContainerEntrypoint"], *container["ContainerArguments"]]
    packed(bench, outcome, [(command, {"SAGEMAKER_BASE_DIR": str(root)}) for root in hosts_of(bench, "config")])
    outcome.note += "; 2 hosts' commands run here"
    return outcome


TORCH = ("py:torch", "py:infeed")
SCHEMAS = ("py:kubernetes-validate", "py:PyYAML")
ROWS = [
    Row("examples/slurm/train.sbatch, ddp_torch.py", "Slurm", sbatch("train.sbatch", 4, "python", DDP, TRAINED),
        ("slurm", *TORCH)),
    Row("examples/slurm/train.sbatch, infeed run", "Slurm", train_sbatch_of_the_binary, ("slurm",)),
    Row("examples/slurm/torchrun.sbatch, ddp_torch.py", "Slurm", sbatch("torchrun.sbatch", 4, DDP, TRAINED), ("slurm", *TORCH)),
    Row("examples/mpi/run.sh, ddp_torch.py", "Open MPI", mpi("mpirun.openmpi"), ("mpirun.openmpi", *TORCH)),
    Row("examples/mpi/run.sh, ddp_torch.py", "MPICH", mpi("mpiexec.mpich"), ("mpiexec.mpich", *TORCH)),
    Row("examples/ray/train.py, a worker lost", "Ray", ray_train, ("py:ray", *TORCH)),
    Row("examples/kubernetes/indexed-job.yaml", "kubernetes-validate", kubernetes_train, (*SCHEMAS, *TORCH)),
    Row("examples/kubernetes/prepare-job.yaml", "kubernetes-validate", kubernetes_prepare, SCHEMAS),
    Row("examples/aws-batch/train.json", "botocore", batch_train, ("py:botocore", *TORCH)),
    Row("examples/aws-batch/prepare.json", "botocore", batch_prepare, ("py:botocore",)),
    Row("examples/sagemaker/launch.py", "botocore", sagemaker_launch, ("py:botocore",)),
    Row("examples/sagemaker/processing.py", "botocore", sagemaker_processing, ("py:botocore",)),
]
