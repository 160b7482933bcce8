"""A Slurm of two nodes on this machine: munged, slurmctld, two slurmd, all in one folder.

Nothing of /etc is read or written: SLURM_CONF names the configuration, and munge has a key and a socket of its own.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "scancel", "squeue", "sinfo")
NODES = ("n1", "n2")

CONFIGURATION = """\
ClusterName=launchers
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
# Two nodes that are one machine would make one folder of PMIx.
TmpFS={folder}/tmp.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
# Jobs of two components are begun by the backfill scheduler, which else looks every 30 s.
SchedulerParameters=bf_interval=1
# More cores than there are, so that jobs find room.
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=1000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    def __init__(self, folder: Path):
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self.mpi: set[str] = set()

    @staticmethod
    def missing() -> list[str]:
        return [program for program in PROGRAMS if not shutil.which(program, path=paths())]

    def start(self) -> None:
        for name in ("munge", "state", *(f"spool.{node}" for node in NODES), *(f"tmp.{node}" for node in NODES)):
            (self.folder / name).mkdir(parents=True)
        # munge refuses keys and folders that others can read.
        (self.folder / "munge").chmod(0o700)
        key = self.folder / "munge/key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        with_ports = CONFIGURATION.format(
            folder=self.folder, host=socket.gethostname(), user=subprocess.check_output(["id", "-un"], text=True).strip(),
            ports=free_ports(3),
        )  # fmt: skip
        (self.folder / "slurm.conf").write_text(with_ports)
        # Forced: the folder of the socket is not one that everybody may enter, and need not be.
        munge = ["munged", "--force"] + [
            f"--{option}={self.folder}/munge/{name}"
            for option, name in [
                ("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"),
            ]
        ]  # fmt: skip
        self.call(*munge)
        self.call("slurmctld", "-f", self.environment["SLURM_CONF"], "-c")
        for node in NODES:
            self.call("slurmd", "-N", node, "-f", self.environment["SLURM_CONF"], "-c")
        for _ in range(600):
            if self.call("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"]:
                break
            time.sleep(0.1)
        else:
            raise RuntimeError(f"the two nodes did not come up; {self.folder} has the logs")
        self.mpi = {kind for kind in ("pmi2", "pmix") if self.has_mpi(kind)}

    def has_mpi(self, kind: str) -> bool:
        """Listed is not enough: PMIx's library is looked for when a step begins, by the name that Debian's -dev package has."""
        try:
            self.call("srun", f"--mpi={kind}", "-n1", "true")
        except (subprocess.SubprocessError, RuntimeError):
            return False
        return True

    def clear(self) -> None:
        """Ends all jobs, and waits until they are gone."""
        try:
            if jobs := self.call("squeue", "-h", "-o", "%A", limit=20).split():
                self.call("scancel", *jobs, limit=20)
                for _ in range(100):
                    if not self.call("squeue", "-h", limit=20).strip():
                        break
                    time.sleep(0.1)
        except (subprocess.SubprocessError, RuntimeError):
            """A controller that does not answer has no jobs that could be ended; the daemons are stopped in any case."""

    def stop(self) -> None:
        """Ends the daemons, by their own notes of who they are."""
        names = [f"slurmd.{node}.pid" for node in NODES] + ["slurmctld.pid", "munge/pid"]
        for name in names:
            try:
                process = int((self.folder / name).read_text())
                os.kill(process, signal.SIGTERM)
            except (OSError, ValueError):
                continue
            for _ in range(100):
                if not alive(process):
                    break
                time.sleep(0.1)
            else:
                os.kill(process, signal.SIGKILL)

    def call(self, *command: str, limit: float = 60) -> str:
        environment = {**os.environ, **self.environment, "PATH": paths()}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout


def alive(process: int) -> bool:
    try:
        # Daemons of ours may have no parent left to collect them but ourselves.
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def paths() -> str:
    """Daemons are where a user's PATH need not lead."""
    return os.environ["PATH"] + ":/usr/sbin:/sbin"


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    numbers = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return numbers
