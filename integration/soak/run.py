#!/usr/bin/env python3
"""Hours of random settings, kills and faults, each held against the undisturbed run. See README.md."""

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import chart
from store import Store

REPOSITORY = Path(__file__).resolve().parents[2]
# A process that needs so long for what takes seconds hangs.
PATIENCE = 300
# Beside the budget: code, stacks, tables, a test build of everything, and what the trainer holds.
BESIDE = 160 << 20
HANDLES, THREADS = 400, 200
KINDS = {
    "imagenet": ["imagenet", "--count", "96", "--classes", "6"],
    "tar": ["tar", "--count", "96"],
    "cifar10": ["cifar10", "--count", "2000"],
    "tiff": ["tiff", "--count", "200"],
    "nrrd": ["nrrd", "--count", "4", "--side", "32"],
}
SYNTHETIC = "synthetic://?count=3000&height=32&width=32&classes=10"


class Finding(Exception):
    """Something that must not be."""


class Soak:
    def __init__(self, args):
        self.args = args
        self.seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
        self.out = Path(args.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.log_file = open(self.out / "log.jsonl", "w", buffering=1)
        self.work = Path(tempfile.mkdtemp(prefix="infeed-soak-"))
        self.began = time.monotonic()
        self.held, self.living, self.references = [], [], {}
        self.findings, self.rounds, self.kills, self.last = 0, 0, 0, []
        # Of this process alone: credentials and settings of whoever starts it are no part of a soak.
        self.env = {"PATH": os.environ.get("PATH", ""), "CUDA_VISIBLE_DEVICES": "", "HOME": str(self.work),
                    "INFEED_MANIFEST_DIR": str(self.work / "manifests"), "NO_COLOR": "1"}

    def log(self, **what):
        self.log_file.write(json.dumps({"at": round(time.monotonic() - self.began, 3), **what}) + "\n")

    # Processes.

    def sample(self, pid):
        """Resident bytes, handles and threads of a process; None when it is gone."""
        try:
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            return resident, len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))
        except (OSError, IndexError, ValueError):
            return None

    def infeed(self, args, kill=None, env=None):
        """Runs the command; `kill` is (seconds, signal). Gives exit code, stdout, stderr and the most it held."""
        self.last = [str(self.args.infeed), *map(str, args)]
        most, begun, sent = (0, 0, 0), time.monotonic(), False
        with tempfile.TemporaryFile(dir=self.work) as out, tempfile.TemporaryFile(dir=self.work) as err:
            child = subprocess.Popen(self.last, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={**self.env, **(env or {})})
            try:
                while child.poll() is None:
                    held = self.sample(child.pid)
                    if held:
                        most = tuple(map(max, most, held))
                    ran = time.monotonic() - begun
                    if kill and not sent and ran >= kill[0]:
                        child.send_signal(kill[1])
                        sent = True
                    if ran > PATIENCE:
                        raise Finding(f"it hangs: {ran:.0f} s")
                    time.sleep(0.01)
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
            out.seek(0)
            err.seek(0)
            return child.returncode, out.read().decode(), err.read().decode(), most

    def checked(self, args, env=None):
        code, out, err, _ = self.infeed(args, env=env)
        if code != 0:
            raise Finding(f"exit {code}: {err.strip()[-2000:]}")
        return out

    # Rounds.

    def prepare(self):
        for name, args in KINDS.items():
            kind, *rest = args
            self.checked(["synth", kind, self.work / "data" / name, *rest, "--seed", str(self.seed)])
        self.log(what="data", kinds=list(KINDS), seed=self.seed, work=str(self.work))

    def reference(self, dataset, fixed):
        """The sum of the undisturbed run, once for each dataset and what decides which rows come."""
        key = (dataset, *fixed)
        if key not in self.references:
            url = SYNTHETIC if dataset == "synthetic" else str(self.work / "data" / dataset)
            out = self.checked(["run", url, *fixed, "--batch-size", "16", "--workers", "1", "--prefetch", "2", "--checksum", "--json", "-"])
            report = json.loads(out)
            self.references[key] = report["checksum"], report["samples"]
        return self.references[key]

    def round(self, draws):
        dataset = draws.choice([*KINDS, "synthetic"])
        epochs = draws.randint(1, 3)
        fixed = ["--epochs", str(epochs), "--last-batch", "partial", "--shuffle", draws.choice(["none", "1", "2"]), "--seed", "7"]
        want = self.reference(dataset, fixed)
        remote = dataset != "synthetic" and draws.random() < 0.4
        # CIFAR and volumes hold or share large parts: their least budget is not what is looked for here.
        budget = draws.choice([None, 256, 512]) if dataset in ("imagenet", "tar", "tiff", "synthetic") else None
        state = self.work / "state.json"
        state.unlink(missing_ok=True)
        kills, held = 0, (0, 0, 0)
        store = Store(self.work / "data", draws.random()) if remote else None
        try:
            if store:
                store.rate = draws.choice([0.0, 0.05, 0.2])
            url = f"s3://soak/{dataset}" if store else SYNTHETIC if dataset == "synthetic" else str(self.work / "data" / dataset)
            cache = draws.choice([None, "ram:64MiB", f"{self.work / 'cache'}:128MiB"]) if store else None
            resumed, kills_left = False, draws.choice([0, 1, 2, 4])
            while True:
                # Drawn again for each part: none of it may change what comes.
                settings = ["--batch-size", draws.randint(1, 48), "--log-every", draws.randint(1, 4)]
                settings += draws.choice([[], ["--workers", draws.randint(1, 6)]]) + draws.choice([[], ["--prefetch", draws.randint(1, 6)]])
                settings += ["--memory-budget", f"{budget}MiB"] if budget else []
                settings += ["--cache", cache] if cache else []
                settings += draws.choice([[], ["--io-concurrency", draws.randint(1, 20)]]) if store else []
                settings += ["--step-time", f"{draws.randint(1, 15)}ms"] if kills_left else []
                resume = ["--resume", state] if resumed else []
                kill = (draws.uniform(0.02, 1.5), draws.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])) if kills_left else None
                args = ["run", url, *fixed, *settings, *resume, "--state", state, "--checksum", "--json", "-"]
                code, out, err, most = self.infeed(args, kill, store.env if store else None)
                held = tuple(map(max, held, most))
                if budget and most[0] > (budget << 20) + BESIDE:
                    raise Finding(f"{most[0] >> 20} MiB resident, the budget is {budget}")
                if most[1] > HANDLES or most[2] > THREADS:
                    raise Finding(f"{most[1]} handles, {most[2]} threads")
                if code == 0:
                    report = json.loads(out)
                    got = report["checksum"], self.samples_of(state)
                    break
                killed = kill and code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 130, 143)
                if killed:
                    kills += 1
                    kills_left -= 1
                    # A file that is there is whole: it is read here and by the next part.
                    resumed = state.exists() and bool(json.loads(state.read_text()))
                    continue
                if resumed and code == 2 and "nothing is left" in err:
                    last = json.loads(state.read_text())
                    got = last["checksum"], last["samples"]
                    break
                raise Finding(f"exit {code}: {err.strip()[-2000:]}")
        finally:
            faults = store.faults if store else None
            if store:
                store.close()
            self.kills += kills
        if got != want:
            raise Finding(f"checksum and samples are {got}, the undisturbed run has {want}")
        self.held.append((time.monotonic() - self.began, *held))
        self.log(what="round", n=self.rounds, dataset=dataset, remote=remote, kills=kills, faults=faults, budget=budget,
                 rss=held[0], handles=held[1], threads=held[2], checksum=got[0])

    @staticmethod
    def samples_of(state):
        return json.loads(state.read_text())["samples"]

    # One process that lives long.

    def start_living(self):
        if not self.args.loaders.is_file():
            self.log(what="skipped", why=f"no {self.args.loaders}")
            return None
        seconds = max(10, int(self.args.minutes * 60))
        command = [str(self.args.loaders), str(self.work / "data/imagenet"), str(seconds), str(self.seed)]
        self.living_out = open(self.out / "living.jsonl", "w+")
        self.living_err = open(self.out / "living.err", "w+")
        return subprocess.Popen(command, stdout=self.living_out, stderr=self.living_err, stdin=subprocess.DEVNULL, env=self.env)

    def end_living(self, child):
        try:
            code = child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise Finding("the process of many loaders hangs") from None
        lines = [json.loads(line) for line in (self.out / "living.jsonl").read_text().splitlines()]
        self.living = [(line["seconds"], line["rss"], line["handles"], line["threads"]) for line in lines]
        self.log(what="living", loaders=len(lines), code=code)
        if code != 0:
            raise Finding(f"many loaders: exit {code}: {(self.out / 'living.err').read_text()[-2000:]}")
        if len(lines) >= 40:
            # The second tenth has seen every size; what grows afterwards does not come back.
            tenth = len(lines) // 10
            early = max(line["rss"] for line in lines[tenth:2 * tenth])
            late = sorted(line["rss"] for line in lines[-tenth:])[tenth // 2]
            if late > early * 1.25 + (32 << 20):
                raise Finding(f"many loaders: {early >> 20} MiB resident at first, {late >> 20} at the end")
            if lines[-1]["handles"] > lines[tenth]["handles"] + 16 or lines[-1]["threads"] > lines[tenth]["threads"] + 32:
                raise Finding(f"many loaders: {lines[-1]['handles']} handles, {lines[-1]['threads']} threads at the end")

    # All of it.

    def found(self, what, seed):
        self.findings += 1
        command = shlex.join(self.last)
        self.log(what="finding", finding=str(what), round_seed=seed, command=command)
        again = f"{Path(sys.argv[0])} --only {seed}" if seed is not None else ""
        print(f"\nFOUND: {what}\n  command: {command}\n  seed {self.seed}; the round again: {again or 'the whole run'} --seed {self.seed}", flush=True)

    def run(self):
        print(f"seed {self.seed}; log and chart in {self.out}", flush=True)
        living = None
        try:
            self.prepare()
            if self.args.only is not None:
                seeds = [self.args.only]
            else:
                living = self.start_living()
                master, end = random.Random(self.seed), time.monotonic() + self.args.minutes * 60
                seeds = iter(lambda: master.randrange(1 << 48) if time.monotonic() < end else None, None)
            for seed in seeds:
                self.rounds += 1
                try:
                    self.round(random.Random(seed))
                except (Finding, ValueError, KeyError, OSError) as error:
                    self.found(error if isinstance(error, Finding) else f"{type(error).__name__}: {error}", seed)
                if sys.stderr.isatty():
                    print(f"\r{self.rounds} rounds, {self.kills} kills, {self.findings} findings ", end="", file=sys.stderr)
            if living:
                self.end_living(living)
        except Finding as error:
            self.found(error, None)
        except KeyboardInterrupt:
            print("\nstopped", flush=True)
        finally:
            if living and living.poll() is None:
                living.kill()
                living.wait()
            shutil.rmtree(self.work, ignore_errors=True)
        self.draw()
        print(f"\n{self.rounds} rounds, {self.kills} kills, {len(self.living)} loaders of one process, {self.findings} findings; seed {self.seed}")
        return 1 if self.findings else 0

    def draw(self):
        def rows(at, scale):
            return [("each run", "#1f77b4", [(row[0], row[at] / scale) for row in self.held]),
                    ("many loaders", "#d62728", [(row[0], row[at] / scale) for row in self.living])]
        chart.draw(self.out / "chart.svg", f"soak, seed {self.seed}: {self.rounds} rounds, {self.kills} kills, {self.findings} findings",
                   [("resident, MiB", rows(1, 1 << 20)), ("handles", rows(2, 1)), ("threads", rows(3, 1))])


def stop(*_):
    raise KeyboardInterrupt


def main():
    # Children and folders go however it ends.
    signal.signal(signal.SIGTERM, stop)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, help="decides data, settings, kills and faults [default: another each time]")
    parser.add_argument("--only", type=int, metavar="SEED", help="one round, as a finding named it; with its --seed")
    parser.add_argument("--out", default="soak-out", help="a folder for log.jsonl, living.jsonl and chart.svg [default: soak-out]")
    parser.add_argument("--profile", choices=["release", "debug"], default="release")
    parser.add_argument("--no-build", action="store_true", help="take the binaries that are there")
    args = parser.parse_args()
    if not args.no_build:
        flags = ["--release"] if args.profile == "release" else []
        for what in (["-p", "infeed-cli", "--bin", "infeed"], ["-p", "infeed", "--example", "many_loaders"]):
            subprocess.run(["cargo", "build", "--locked", *flags, *what], cwd=REPOSITORY, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / args.profile
    args.infeed, args.loaders = target / "infeed", target / "examples/many_loaders"
    if not args.infeed.is_file():
        parser.error(f"there is no {args.infeed}")
    return Soak(args).run()


if __name__ == "__main__":
    sys.exit(main())
