#!/usr/bin/env python3
"""Datasets whose records share what is read, from the RAM disk and from a bucket with a latency and a bandwidth a request.

    python3 benches/peers/parts.py --infeed target/release/infeed --photos imagenet/train --setup ~/peers
    python3 benches/peers/parts.py --infeed old=before/infeed --infeed new=target/release/infeed --photos … --setup ~/peers

The same photographs as single objects, in row groups of Parquet, in compressed MDS and TFRecord files, and as pixels in chunks
of Zarr and HDF5; each read once, cold, by a process of its own, in blocks and in random order. Hugging Face's `datasets` and a
DataLoader over pyarrow read the same Parquet. A round runs everyone once: as fast as it goes, and behind a trainer with a fixed
step. Each round another one begins. The bucket is a thread of this process (bucket.py) on the same cores.
"""

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

# No __pycache__: it would lie beside the sources.
sys.dont_write_bytecode = True

import bucket
import venvs
from compare import DISTURBED, busy_seconds, children_seconds, describe_machine, output_of

HERE = Path(__file__).parent
PREFIX = "forms"
# Each: what it is called, and where it lies. Rates are compared with the first of the same kind of records.
PHOTOGRAPHS = {"objects": "files", "Parquet": "parquet", "MDS, zstd": "mds", "TFRecord, gzip": "tfrecord"}
ARRAYS = {"Zarr, a row a chunk": "zarr-rows.zarr", "Zarr": "zarr.zarr", "HDF5": "pixels.h5"}
FORMS = {**PHOTOGRAPHS, **ARRAYS}
OTHERS = {
    "datasets": ("datasets", 0),
    "datasets, DataLoader of 2": ("datasets", 2),
    "pyarrow, DataLoader of 2": ("pyarrow", 2),
}
# A batch that the trainer waits longer for is late.
LATE = 0.001
# A run takes seconds.
ENDLESS = 300


@dataclass(frozen=True)
class Place:
    name: str
    # None: the RAM disk.
    port: int | None


@dataclass(frozen=True)
class Contestant:
    reader: str
    form: str
    command: tuple


def main():
    args = parse()
    groups = (venvs.PARTS, *(group for group in venvs.GROUPS if group.name == "torch" and not args.no_others))
    peers, absent = venvs.find(args.setup, {"torch": args.python} if args.python else {}, None, groups)
    if "parts" not in peers:
        sys.exit("the forms cannot be written without the group parts of venvs.py: give --setup or --python")
    with tempfile.TemporaryDirectory(prefix="infeed-parts-", dir=args.ram_disk) as root:
        args.scratch, args.forms_at = Path(root) / "scratch", Path(root) / "data" / PREFIX
        args.scratch.mkdir()
        args.forms_at.mkdir(parents=True)
        shape = ("--records", str(args.records), "--group", str(args.group))
        script = str(HERE / "parts_forms.py")
        subprocess.run([peers["parts"], script, str(args.photos), str(args.forms_at), *shape], check=True)
        store = bucket.Bucket(args.forms_at.parent, args.bandwidth * 1e6)
        most = ceiling(store)
        print(f"The bucket alone, nothing held back: {most[0]:,.0f} objects/s, {most[1] / 1e6:,.0f} MB/s\n", flush=True)
        places = [] if args.no_ram else [Place("RAM disk", None)]
        places += [Place(f"bucket, {delay:g} ms", store.listen(delay / 1000)) for delay in args.delays]
        step = args.step / 1000 if args.step else local_step(args, store)
        result = {
            "version": 1,
            "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": output_of("git", "rev-parse", "HEAD"),
            "machine": describe_machine(os.sched_getaffinity(0)),
            "settings": {key: value for key, value in vars(args).items() if isinstance(value, (int, float, list))},
            "step_seconds": step,
            "bucket_alone": dict(zip(("objects_per_second", "bytes_per_second"), most)),
            "left_out": absent,
            "runs": [],
        }
        for place in places:
            for order in args.orders:
                runs = compete(args, store, place, order, step, peers.get("torch"))
                result["runs"] += runs
                show(args, place, order, step, runs)
                if args.out:
                    args.out.write_text(json.dumps(result, indent=1) + "\n")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infeed", required=True, action="append", metavar="[NAME=]PATH", help="a release binary with all features; several times")
    parser.add_argument("--photos", required=True, type=Path, help="class folders of JPEGs, repeated to --records")
    parser.add_argument("--setup", help="installs what writes the forms, and the others, below this folder")
    parser.add_argument("--python", help="an interpreter that has it already")
    parser.add_argument("--records", type=int, default=600)
    parser.add_argument("--group", type=int, default=50, help="records of a row group, of an MDS shard, of a TFRecord file")
    parser.add_argument("--window", type=int, default=100, help="records among which blocks are shuffled")
    parser.add_argument("--delays", type=float, nargs="*", default=[1, 20, 40], metavar="MS", help="of the bucket's answers")
    parser.add_argument("--bandwidth", type=float, default=20, metavar="MB/S", help="of a request; 0: no bound")
    parser.add_argument("--orders", nargs="+", choices=["blocks", "random"], default=["blocks", "random"])
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS), metavar="FORM", help=f"of: {'; '.join(FORMS)}")
    parser.add_argument("--no-ram", action="store_true", help="from the bucket alone")
    parser.add_argument("--no-others", action="store_true", help="infeed alone")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--step", type=float, metavar="MS", help="of the trainer for a batch [default: 1.5 times what files on the RAM disk take]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ram-disk", default="/dev/shm", help="where the forms are made")
    parser.add_argument("--out", type=Path, help="every figure as JSON, written after each table")
    args = parser.parse_args()
    binaries = dict(one.split("=", 1) if "=" in one else ("infeed", one) for one in args.infeed)
    args.binaries = {name: shutil.which(path) or parser.error(f"--infeed {path}: no such program") for name, path in binaries.items()}
    return args


def ceiling(store):
    """Objects a second that the bucket gives when it is all that has something to do; of single photographs."""
    keys = [key for key in sorted(store.objects) if key.startswith(f"{PREFIX}/files/")] * 5
    command = [sys.executable, str(HERE / "bucket.py"), str(store.listen(0, bounded=False)), "16"]
    done = subprocess.run(command, input="\n".join(keys), capture_output=True, text=True, check=True)
    return tuple(map(float, done.stdout.split()))


def local_step(args, store):
    """A step that every reader of the RAM disk keeps up with."""
    where = Place("RAM disk", None)
    name = next(iter(args.binaries))
    one = infeed(args, where, "random", name, "objects")
    return 1.5 * args.batch_size / statistics.median(run(args, store, one, where, 0)["rate"] for _ in range(3))


def compete(args, store, place, order, step, torch):
    entered = [infeed(args, place, order, name, form) for form in args.forms for name in args.binaries]
    # The others have no random order over all records of such files.
    if torch and order == "blocks" and "Parquet" in args.forms:
        entered += [other(args, place, torch, name) for name in OTHERS]
    runs = []
    for number in range(args.rounds):
        turn = number * len(entered) // args.rounds
        for one in entered[turn:] + entered[:turn]:
            if one not in entered:
                continue
            about = {"place": place.name, "order": order, "round": number, "reader": one.reader, "form": one.form}
            try:
                free, stepped = run(args, store, one, place, 0), run(args, store, one, place, step)
            except Failed as error:
                print(f"{place.name}, {order}: {one.form} by {one.reader} is left out: {error}", file=sys.stderr)
                entered = [other for other in entered if other is not one]
                runs = [run for run in runs if (run["reader"], run["form"]) != (one.reader, one.form)]
                continue
            runs.append({**about, "free": free, "stepped": stepped})
            words = f"{free['rate']:,.0f}/s, {1000 * free['first']:,.0f} ms to the first, {stepped['late']} late"
            print(f"{place.name}, {order}, round {number + 1}: {one.form} by {one.reader}: {words}", file=sys.stderr)
    return runs


def infeed(args, place, order, name, form):
    orders = {"blocks": {"blocks": {"seed": 1, "window": args.window}}, "random": {"random": {"seed": 1}}}
    config = args.scratch / f"{order}.toml"
    [(kind, told)] = orders[order].items()
    config.write_text(f"[order.{kind}]\n" + "".join(f"{key} = {value}\n" for key, value in told.items()))
    where = f"s3://{bucket.BUCKET}/{PREFIX}/{FORMS[form]}" if place.port else str(args.forms_at / FORMS[form])
    # Numbers of any shape are no pictures unless one says so.
    fields = ("--field", "image=image") if form in ARRAYS else ()
    return Contestant(name, form, (
        *(args.binaries[name], "run", where, "--config", str(config), "--transform", "imagenet-train", *fields),
        *("--batch-size", str(args.batch_size), "--last-batch", "partial", "--device", "cpu", "--dtype", "f32"),
        *("--rank", "0", "--world-size", "1", "--log-every", "1000000", "--quiet", "--json", "-"),
    ))


def other(args, place, python, name):
    variant, workers = OTHERS[name]
    at = args.forms_at / "parquet"
    base = f"http://127.0.0.1:{place.port}/{bucket.BUCKET}/{PREFIX}/parquet" if place.port else str(at)
    urls = [f"{base}/{path.name}" for path in sorted(at.iterdir())]
    shape = ("--workers", str(workers), "--batch-size", str(args.batch_size), "--window", str(args.window))
    return Contestant(name, "Parquet", (python, str(HERE / "peer_parts.py"), variant, *urls, *shape))


class Failed(Exception):
    """A contestant did not do its work."""


def run(args, store, one, place, step):
    """One epoch by a process that has nothing kept from before; with what it asked of the bucket."""
    script = one.command[1].endswith(".py")
    paced = ("--step", str(step)) if script else ("--step-time", f"{1e6 * step:.0f}us")
    kept = tempfile.mkdtemp(dir=args.scratch)
    unset = ("AWS_", "INFEED_", "HF_", "PYTHON")
    env = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    env |= {"HOME": kept, "XDG_CACHE_HOME": kept, "HF_HOME": kept, "INFEED_MANIFEST_DIR": "off"}
    # Compiled once, and not beside the sources: importing torch takes 20 s otherwise, each time.
    env["PYTHONPYCACHEPREFIX"] = str(args.scratch / "compiled")
    env |= bucket.environment(place.port) if place.port else {}
    cores = os.sched_getaffinity(0)
    before, busy, children, start = store.used(), busy_seconds(cores), children_seconds(), time.perf_counter()
    try:
        done = subprocess.run([*one.command, *(paced if step else ())], capture_output=True, text=True, env=env, timeout=ENDLESS)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"no end after {ENDLESS} s") from error
    finally:
        shutil.rmtree(kept)
    wall, busy, children = time.perf_counter() - start, busy_seconds(cores) - busy, children_seconds() - children
    requests, sent, served = (now - then for now, then in zip(store.used(), before))
    if done.returncode:
        raise Failed(f"exit {done.returncode}: {venvs.last_line(done.stderr)}")
    told = json.loads(done.stdout[done.stdout.index("{") :])
    if told["samples"] != args.records:
        raise Failed(f"{told['samples']} records of {args.records}")
    later = told["batches"] - 1
    on_time = next(among["batches"] for among in told["wait_buckets"] if among["at_most"] == LATE)
    return {
        "rate": told["samples_per_second"],
        "open": told["open_seconds"],
        "first": told["first_batch_seconds"],
        "cpu": told["cpu_seconds"] / told["samples"],
        "late": later - on_time,
        "wait": told["data_wait"]["sum"] / later,
        "requests": requests,
        "bytes": sent,
        "bucket_cpu": served / told["samples"],
        "disturbed": busy - children - served > DISTURBED * wall * len(cores),
    }


def show(args, place, order, step, runs):
    kind = f"blocks, window {args.window}" if order == "blocks" else "random order"
    print(f"### {place.name}, {kind}\n")
    several = len(args.binaries) > 1
    base = next(iter(args.binaries))
    columns = ["form", "by", "records/s: median (range)", "of single records"]
    columns += [f"of {base}'s"] if several else []
    columns += ["CPU ms/record", "open ms", "first batch ms", "late batches", "wait ms/batch"]
    columns += ["requests", "MB read", "bucket's CPU ms/record"] if place.port else []
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    by = {}
    for run in runs:
        by.setdefault((run["form"], run["reader"]), {})[run["round"]] = run
    for (form, reader), rounds in by.items():
        free, stepped = [[run[way] for run in rounds.values()] for way in ("free", "stepped")]
        # Others are compared with what the first binary makes of single objects.
        mine = reader if reader in args.binaries else base
        cells = [form, reader, spread([run["rate"] for run in free], 0)]
        cells.append(ratio(rounds, by.get((next(iter(PHOTOGRAPHS if form in PHOTOGRAPHS else ARRAYS)), mine))))
        cells += [ratio(rounds, by.get((form, base)))] if several else []
        cells += [spread([1000 * run["cpu"] for run in free], 2)]
        cells += [spread([1000 * run[key] for run in free], 0) for key in ("open", "first")]
        cells += [spread([run["late"] for run in stepped], 0)]
        cells += [spread([1000 * run["wait"] for run in stepped], 1)]
        if place.port:
            cells += [spread([run["requests"] for run in free], 0), spread([run["bytes"] / 1e6 for run in free], 0)]
            cells += [spread([1000 * run["bucket_cpu"] for run in free], 2)]
        print(f"| {' | '.join(cells)} |")
    count = [run[way]["disturbed"] for run in runs for way in ("free", "stepped")]
    batches = -(-args.records // args.batch_size)
    print(
        f"\n{args.records} records, {batches} batches; late and waits: after the first batch, behind a step of {1000 * step:.0f} ms. "
        f"Disturbed: {sum(count)} of {len(count)} runs.\n",
        flush=True,
    )


def ratio(rounds, base):
    """Rates within a round: they hold where the machine's speed moves."""
    both = [number for number in rounds if number in (base or {})]
    return spread([rounds[number]["free"]["rate"] / base[number]["free"]["rate"] for number in both], 2) if both else "–"


def spread(values, digits):
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


if __name__ == "__main__":
    main()
