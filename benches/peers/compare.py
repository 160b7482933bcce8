#!/usr/bin/env python3
"""infeed beside other loaders: the same files, cores and output, taking turns in one run. See README.md."""

import argparse
import datetime
import itertools
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

# No __pycache__: it would lie beside the sources.
sys.dont_write_bytecode = True

import headline
import photographs
import venvs
from entries import HERE, IN_PYTHON, Contestant, Workload, in_python, infeed_command, peer_command, read_infeed, read_peer

PHOTOGRAPHS = ("photos", "val", "decode", "large", "scaling", *photographs.RECODED, *(row[0] for row in photographs.RECIPES + photographs.DETECTION))
CIFAR_RECORD = 1 + 3 * 32 * 32
# A run is called disturbed when others used more of our cores than this.
DISTURBED = 0.05
# No run is meant to take this long, in seconds.
ENDLESS = 900


class Failed(Exception):
    """A contestant did not do its work."""


# Contestants.


def contestants(args, workload, peers):
    if workload.name in PHOTOGRAPHS:
        return photographs.contestants(args, workload, peers)
    found = [Contestant("infeed", infeed_command(args, workload), read_infeed)]
    if workload.name in ("volumes", "patches"):
        return found + volume_peers(args, workload, peers)
    found += in_python(args, workload, peers)
    if "dali" in peers:
        found.append(Contestant("DALI", peer_command(args, workload, peers["dali"], "peer_dali.py"), read_peer))
    if "torch" in peers:
        name = {
            "cifar": "torch, whole batches by hand",
            "cells": "torch DataLoader + tifffile + torchvision v2",
            "cells-read": "torch DataLoader + tifffile",
        }[workload.name]
        found.append(Contestant(name, peer_command(args, workload, peers["torch"], "peer_torch.py"), read_peer))
    return found


def wanted(args, workload, found):
    """Those of --rows; who is compared with the others stays."""
    if not args.rows:
        return found
    names = {one.name: one.family or one.name for one in found}
    for name in args.rows:
        if name not in names.values():
            print(f"{workload.name} has no row {name!r}; it has: {', '.join(dict.fromkeys(names.values()))}", file=sys.stderr)
    kept = [one for one in found if names[one.name] in args.rows]
    rivals = {one.rival for one in kept} or {"infeed"}
    return [one for one in found if one in kept or one.name in rivals]


def volume_peers(args, workload, peers):
    found = []
    if "dali" in peers:
        command = peer_command(args, workload, peers["dali"], "peer_volumes.py", "dali")
        found.append(Contestant("DALI, volumes in memory", command, read_peer))
    if "torch" in peers:
        # Reading files for each sample takes a minute an epoch of 1,000: one epoch tells.
        once = replace(workload, epochs=1)
        files = peer_command(args, once, peers["torch"], "peer_volumes.py", "torch-files")
        found.append(Contestant("torch DataLoader + pynrrd", files, lambda line, _: read_peer(line, once)))
        cache = peer_command(args, workload, peers["torch"], "peer_volumes.py", "torch-cache")
        found.append(Contestant("the same, each worker keeps patients", cache, read_peer))
    return found


# Data.


def stage_cifar(args, root):
    """The official five training files; where there are fewer, they are linked by the missing names."""
    found = sorted(Path(args.cifar).glob("data_batch_*.bin"))
    if not found:
        sys.exit(f"--cifar {args.cifar}: no data_batch_1.bin; give the folder of CIFAR-10's binary version")
    folder = root / "cifar-10-batches-bin"
    folder.mkdir()
    for extra in ("batches.meta.txt", "test_batch.bin"):
        if (Path(args.cifar) / extra).exists():
            shutil.copyfile(Path(args.cifar) / extra, folder / extra)
    targets = [folder / f"data_batch_{number}.bin" for number in range(1, 6)]
    for number, target in enumerate(targets):
        if number < len(found):
            shutil.copyfile(found[number], target)
        else:
            os.link(targets[number % len(found)], target)
    return Workload(
        name="cifar",
        title="CIFAR-10: pad 4, random crop 32, flip, normalise",
        transform="cifar-train",
        batch_size=256,
        epochs=args.cifar_epochs,
        folder=folder,
        records=sum(target.stat().st_size // CIFAR_RECORD for target in targets),
    )


def cells(args):
    """TIFFs of `infeed synth tiff`, where they are: once read only, once resized."""
    folder = Path(args.cells)
    records = sum(1 for _ in folder.glob("*/*.tif"))
    if not records:
        sys.exit(f"--cells {folder}: no .tif in class folders; make them with `infeed synth tiff`")
    common = {"batch_size": 32, "folder": folder, "records": records}
    read = Workload(
        name="cells-read",
        title="TIFF 50x50x5, read only",
        transform="none",
        epochs=args.cells_epochs,
        dtype="u8",
        layout="nhwc",
        **common,
    )
    resized = Workload(
        name="cells",
        title="TIFF 50x50x5, resized to 220x224, crop 220, 0 to 1",
        transform="cells",
        epochs=args.epochs,
        **common,
    )
    return [read, resized]


def stage_volumes(args, root, patch=None):
    """Patients of CT, PET and two masks, 144x144x144, compressed; 15 samples of each."""
    folder = root / "patients"
    if not folder.exists():
        subprocess.run([args.infeed, "synth", "nrrd", folder, "--count", str(args.patients)], check=True, stdout=sys.stderr)
    steps = root / f"{'patch' if patch else 'whole'}.json"
    steps.write_text(json.dumps([{"op": "patch", "size": patch}] if patch else []))
    return Workload(
        name="patches" if patch else "volumes",
        title=f"CT and PET as two channels, two masks; {f'random patches of {patch}' if patch else 'whole volumes'}",
        transform=str(steps),
        batch_size=4,
        epochs=args.volume_epochs,
        folder=folder,
        records=args.patients * 15,
        options=("--field", "image=ct+pet", "--field", "mask=mask+mask2", "--samples-per-patient", "15"),
    )


def stage_patches(args, root):
    return stage_volumes(args, root, patch=96)


# Measuring.


def measure(contestant, workload, cores):
    """Runs a contestant once. Adds what the operating system saw of it, and of others on the same cores."""
    contestant.before()
    cores = cores[: contestant.cores]
    busy, used, start = busy_seconds(cores), children_seconds(), time.perf_counter()
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **contestant.env}
    try:
        done = subprocess.run(
            contestant.command,
            capture_output=True,
            text=True,
            env=env,
            timeout=ENDLESS,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"no end after {ENDLESS} s") from error
    wall, used, busy = time.perf_counter() - start, children_seconds() - used, busy_seconds(cores) - busy
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-15:])
        raise Failed(f"exit {done.returncode}:\n{' '.join(contestant.command)}\n{tail}")
    try:
        # Libraries print warnings before it.
        figures = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError as error:
        raise Failed(f"no JSON on stdout ({error}): {done.stdout[-500:]}") from error
    others = max(0.0, busy - used)
    return {
        **contestant.read(figures, workload),
        "rival": contestant.rival,
        "cores": len(cores),
        "family": contestant.family,
        "prepared": contestant.prepared,
        "process": {
            "wall_seconds": wall,
            "cpu_seconds": used,
            "other_cpu_seconds": others,
            "disturbed": others > DISTURBED * wall * len(cores),
        },
    }


def children_seconds():
    """CPU time of all children that ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def busy_seconds(cores):
    """Time our cores were not idle, whoever used them (a hypervisor's other guests count)."""
    names = {f"cpu{core}" for core in cores}
    total = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name in names:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, ticks[:8])
            total += user + nice + system + irq + softirq + steal
    return total / os.sysconf("SC_CLK_TCK")


def compete(workload, entered, args, cores, save):
    if not workload.images_per_epoch:
        sys.exit(f"{workload.records} records do not fill a batch of {workload.batch_size}; give more")
    rounds = []
    for number in range(args.rounds):
        # Everyone starts a round as often as the next: what one leaves behind (caches, heat) is shared out.
        turn = number % len(entered)
        order = entered[turn:] + entered[:turn]
        results = {}
        for contestant in order:
            try:
                result = measure(contestant, workload, cores)
            except Failed as error:
                if contestant.name.startswith("infeed"):
                    sys.exit(f"{contestant.name} failed: {error}")
                # One that fails takes no other along: its rounds are left out as well.
                print(f"{contestant.name} is left out: {error}", file=sys.stderr)
                entered = [one for one in entered if one is not contestant]
                for earlier in rounds:
                    earlier["results"].pop(contestant.name, None)
                continue
            results[contestant.name] = result
            print(f"{workload.name} round {number + 1}: {contestant.name}: {rate(result):,.0f}/s", file=sys.stderr)
        rounds.append({"order": list(results), "results": results})
        save(rounds)
    return rounds


# Figures.


def rate(result):
    return result["images"] / result["seconds"]


def rate_from_start(result):
    """With the first batch, and all of the first epoch."""
    return rate(result["from_start"])


def spread(values):
    values = list(values)
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summarise(rounds):
    summary = {}
    for name in rounds[0]["results"]:
        results = [one["results"][name] for one in rounds]
        rival, n, family = (results[0][key] for key in ("rival", "cores", "family"))
        summary[name] = {
            "rival": rival,
            "prepared": results[0]["prepared"],
            "images_per_second": spread(map(rate, results)),
            # Round by round: the machine's mood of the minute is in both and falls out.
            "infeed_is_times": spread(rate(one["results"][rival]) / rate(one["results"][name]) for one in rounds),
            "cpu_ms_per_image": spread(1e3 * r["cpu_seconds"] / r["images"] for r in results),
            "first_batch_seconds": spread(r["first_batch_seconds"] for r in results),
            "peak_rss_bytes": spread(r["peak_rss_bytes"] for r in results),
            "disturbed": sum(r["process"]["disturbed"] for r in results),
        }
        first = rival.replace("infeed", "infeed, first epoch", 1)
        if first in rounds[0]["results"] and not name.startswith("infeed"):
            times = (rate(one["results"][first]) / rate(one["results"][name]) for one in rounds)
            summary[name]["first_epoch_is_times"] = spread(times)
        if IN_PYTHON in rounds[0]["results"]:
            summary[name]["images_per_second_from_start"] = spread(map(rate_from_start, results))
            for key, of in (("python_is_times", rate), ("python_is_times_from_start", rate_from_start)):
                summary[name][key] = spread(of(one["results"][IN_PYTHON]) / of(one["results"][name]) for one in rounds)
        alone = family and f"{family}, 1 core"
        if alone and n > 1 and alone in summary:
            # Of n times the rate on one core.
            ratios = (rate(one["results"][name]) / rate(one["results"][alone]) / n for one in rounds)
            summary[name]["per_core"] = spread(ratios)
        shared = [r["end_pss_bytes"] for r in results if r.get("processes", 1) > 1]
        if shared:
            summary[name]["end_pss_bytes"] = spread(shared)
    return summary


def table(summary):
    header = ["", "images/s: median (range)", "infeed is: median (range)"]
    first = any("first_epoch_is_times" in figures for figures in summary.values())
    scaled = any("per_core" in figures for figures in summary.values())
    python = any("python_is_times" in figures for figures in summary.values())
    header += ["its first epoch is"] * first + [f"{IN_PYTHON} is", "with the first batch"] * python
    header += ["CPU ms/image", "first batch ms", "peak MB"]
    rows = [header + ["each core, of one alone"] * scaled]
    for name, figures in summary.items():
        memory = f"{figures['peak_rss_bytes']['median'] / 1e6:,.0f}"
        if "end_pss_bytes" in figures:
            memory += f" (PSS {figures['end_pss_bytes']['median'] / 1e6:,.0f})"
        row = [name, ranged(figures["images_per_second"], ",.0f")]
        row += ["" if name == figures["rival"] else ranged(figures["infeed_is_times"], ".2f", "×")]
        row += [ranged(figures.get("first_epoch_is_times"), ".2f", "×")] * first
        for key in ("python_is_times", "python_is_times_from_start") * python:
            row.append("" if name == IN_PYTHON else ranged(figures.get(key), ".2f", "×"))
        row += [f"{figures['cpu_ms_per_image']['median']:.4g}", f"{1e3 * figures['first_batch_seconds']['median']:,.0f}", memory]
        rows.append(row + [ranged(figures.get("per_core"), ".0%")] * scaled)
    return aligned(rows)


def aligned(rows):
    """A table in Markdown; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    rule = ["|-" + "-|-".join("-" * width for width in widths) + "-|"]
    return "\n".join(lines[:1] + rule + lines[1:])


def ranged(figures, form, unit=""):
    if figures is None:
        return ""
    return f"{figures['median']:{form}}{unit} ({figures['min']:{form}}–{figures['max']:{form}})"


def show(workload, rounds, summary, cores):
    print(
        f"\n{workload.title}; {workload.dtype} {workload.layout.upper()}, batch {workload.batch_size}, {workload.records:,} records, "
        f"epochs: {workload.epochs} after one to warm up, cores: {len(cores)}, rounds: {len(rounds)}\n"
    )
    print(table(summary))
    runs, disturbed = len(rounds) * len(summary), sum(figures["disturbed"] for figures in summary.values())
    if disturbed:
        print(f"\n{disturbed} of {runs} runs were disturbed: others took over {DISTURBED:.0%} of these cores.")


# The machine.


def describe_machine(cores):
    return {
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores_used": len(cores),
        "cores": os.cpu_count(),
        "memory": field("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


def field(file, key):
    for line in Path(file).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


def output_of(*command):
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE)
    return done.stdout.strip() if done.returncode == 0 else None


# Of --quick: enough to see that everything works.
QUICK = {"rounds": 1, "records": 256, "epochs": 1, "cifar_epochs": 2, "cells_epochs": 1, "volume_epochs": 2, "patients": 2}


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--infeed", required=True, help="the release binary")
    parser.add_argument("--setup", metavar="DIR", help="install the other loaders in DIR, unless they are there, and use them")
    parser.add_argument("--peers", nargs="+", choices=[group.name for group in venvs.GROUPS], help="only these (default: all)")
    parser.add_argument("--wheel", help="infeed's: adds a Python loop over infeed, with torch's tensors; takes the group torch")
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="only these of the tables, with those they are compared with")
    parser.add_argument("--photos", help="class folders of JPEGs")
    parser.add_argument(
        *("--work",),
        nargs="+",
        choices=(*photographs.WORKS, *(row[0] for row in photographs.RECIPES + photographs.DETECTION), "all"),
        default=["train"],
        help="with the photographs (default: train). decode wants --infeed-decode; large makes 12-megapixel photographs of them; webp, tiff: the same in these formats; recipes: augmentation, all of it; a recipe's own name: that alone; ssd, lsj: detection",
    )
    parser.add_argument("--infeed-decode", type=Path, help="examples/decode (default: beside --infeed, in examples/)")
    parser.add_argument("--no-raw", action="store_true", help="leave out those that read prepared files: raw pixels, FFCV's")
    parser.add_argument("--quick", action="store_true", help="one round of few records: to try everything, not to measure")
    parser.add_argument("--cifar", help="folder of CIFAR-10's binary version")
    parser.add_argument("--cells", help="folder that `infeed synth tiff` made, on the RAM disk")
    parser.add_argument("--volumes", action="store_true", help="patients that infeed makes up, whole and in patches")
    parser.add_argument("--patients", type=int, default=8, help="of volumes (default: 8)")
    parser.add_argument("--volume-epochs", type=int, default=20, help="of volumes, after one to warm up (default: 20)")
    parser.add_argument("--python-dali", help="interpreter that can import nvidia.dali")
    parser.add_argument("--python-torch", help="interpreter that can import torch and torchvision, and others of that group")
    parser.add_argument("--python-tf", help="interpreter that can import tensorflow")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=2000, help="photographs, by repetition (default: 2000)")
    parser.add_argument("--epochs", type=int, default=2, help="of photographs, after one to warm up (default: 2)")
    parser.add_argument("--cifar-epochs", type=int, default=20, help="of CIFAR, after one to warm up (default: 20)")
    parser.add_argument("--cells-epochs", type=int, default=5, help="of TIFFs read only (default: 5)")
    parser.add_argument("--cores", type=int, default=2, help="that all may use, and workers or threads of each (default: 2)")
    parser.add_argument("--ram-disk", default="/dev/shm", help="where the data is laid out (default: /dev/shm)")
    parser.add_argument("--out", default="results.json", help="every raw figure (default: results.json)")
    parser.add_argument("--headline", action="store_true", help="write the README's table of this run, and its figures into benches/results/headline.json")
    first, _ = parser.parse_known_args()
    if first.quick:
        parser.set_defaults(**QUICK)
    args = parser.parse_args()
    # Where the wheel is installed.
    args.package = None
    if args.wheel and not Path(args.wheel).is_file():
        parser.error(f"--wheel {args.wheel}: no such file")
    if "all" in args.work:
        args.work = list(photographs.WORKS)
    if not (args.photos or args.cifar or args.cells or args.volumes):
        parser.error("nothing to load: give --photos, --cifar, --cells or --volumes")
    if min(args.rounds, args.records, args.epochs, args.cifar_epochs, args.cells_epochs, args.volume_epochs, args.cores) < 1:
        parser.error("rounds, records, epochs and cores are 1 or more")
    args.infeed = shutil.which(args.infeed) or parser.error(f"--infeed {args.infeed}: no such program")
    args.infeed_decode = args.infeed_decode or Path(args.infeed).with_name("examples") / "decode"
    for name in ("python_dali", "python_torch", "python_tf"):
        given = getattr(args, name)
        if given and not shutil.which(given):
            parser.error(f"--{name.replace('_', '-')} {given}: no such program")
    return args


def unpack(wheel, python, folder):
    """Installs the wheel beside the others' environments: what is measured is always the one that was named."""
    # The file and nothing else: without an index, and as a path, which is never the name of a package.
    command = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(folder), os.path.abspath(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"--wheel {wheel} does not install: {venvs.last_line(done.stderr)}")
    return folder


def main():
    args = parse()
    given = {venv: python for venv in ("dali", "torch", "tf") if (python := getattr(args, f"python_{venv}"))}
    peers, absent = venvs.find(args.setup, given, args.peers)
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < args.cores:
        sys.exit(f"--cores {args.cores}: this process may use {len(allowed)}")
    cores = allowed[: args.cores]
    os.sched_setaffinity(0, cores)  # children inherit it

    result = {
        "version": 1,
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": output_of("git", "rev-parse", "HEAD"),
        "uncommitted_changes": bool(output_of("git", "status", "--porcelain", "--untracked-files=no")),
        "infeed": output_of(os.path.abspath(args.infeed), "--version"),
        "machine": describe_machine(cores),
        "rounds": args.rounds,
        "quick": args.quick,
        "wheel": args.wheel and Path(args.wheel).name,
        "left_out": absent,
        "workloads": {},
    }
    with tempfile.TemporaryDirectory(prefix="infeed-peers-", dir=args.ram_disk) as root:
        if args.wheel and "torch" in peers:
            args.package = unpack(args.wheel, peers["torch"], Path(root) / "wheel")
        elif args.wheel:
            print(f"{IN_PYTHON} is left out: it hands its batches to torch, of the group torch", file=sys.stderr)
        stages = [
            (args.cifar, stage_cifar),
            (args.volumes, stage_volumes),
            (args.volumes, stage_patches),
        ]
        workloads = photographs.stage(args, Path(root), peers) if args.photos else ()
        rest = [stage(args, Path(root)) for given, stage in stages if given]
        for workload in itertools.chain(workloads, rest, cells(args) if args.cells else ()):

            def save(rounds, workload=workload):
                summary = summarise(rounds)
                result["workloads"][workload.name] = {
                    "transform": workload.title,
                    "records": workload.records,
                    "batch_size": workload.batch_size,
                    "epochs": workload.epochs,
                    "summary": summary,
                    "rounds": rounds,
                }
                # After every round, so that a run cut short leaves what it has.
                Path(args.out).write_text(json.dumps(result, indent=1) + "\n")

            entered = wanted(args, workload, contestants(args, workload, peers))
            rounds = compete(workload, entered, args, cores, save)
            show(workload, rounds, summarise(rounds), cores)
    if args.headline:
        headline.write(result)
    print(f"\nAll figures: {args.out}")


if __name__ == "__main__":
    main()
