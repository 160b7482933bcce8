#!/usr/bin/env python3
"""Tables, and a folder of images, in a bucket that are opened for the first time and again.

    python3 benches/peers/opening.py --infeed target/release/infeed --setup ~/peers
    python3 benches/peers/opening.py --infeed old=before/infeed --infeed new=target/release/infeed --setup ~/peers

Tiny records in shards, hard links of one. `infeed run` opens them and gives one batch of one column; what it keeps is removed
before its first opening. pyarrow opens the same Parquet and counts its rows: it reads the footer of each file, as infeed does.
Of `flat`, a folder of images without folders in it, pyarrow lists the files.
The bucket is a thread of this process (bucket.py) on the same cores. `--ranks` opens the same in several processes of infeed at
once.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# No __pycache__: it would lie beside the sources.
sys.dont_write_bytecode = True

import bucket
import venvs
from compare import describe_machine

# Each with a column that needs no decoder.
FORMS = {"mds": "label", "parquet": "label", "tfrecord.gz": "noise", "flat": None}
STORE = """
import sys
from pyarrow import dataset, fs
store = fs.S3FileSystem(endpoint_override=f"127.0.0.1:{sys.argv[1]}", scheme="http", anonymous=True, region="us-east-1")
"""
PYARROW = {
    "parquet": STORE + "print(dataset.dataset(sys.argv[2], filesystem=store, format='parquet').count_rows())",
    "flat": STORE + "print(len(store.get_file_info(fs.FileSelector(sys.argv[2]))))",
}


def measure(commands, env, server):
    """Seconds, seconds of CPU and the largest resident MB of a process, and requests and MB that the bucket answered."""
    before, start = server.used(), time.perf_counter()
    running = [subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) for command in commands]
    cpu, peak = 0.0, 0.0
    for process in running:
        _, status, used = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{commands[0]} failed")
        cpu, peak = cpu + used.ru_utime + used.ru_stime, max(peak, used.ru_maxrss / 1024)
    seconds, after = time.perf_counter() - start, server.used()
    return seconds, cpu, peak, after[0] - before[0], (after[1] - before[1]) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--infeed", action="append", required=True, help="the command, or NAME=COMMAND, again for another")
    parser.add_argument("--setup", required=True, help="where the others are installed, and are installed to")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--shards", type=int, default=1000, help="of 1000 records each")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--delay", type=float, default=20, help="milliseconds until an answer begins")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", default="/dev/shm", help="where the data is made, until all is done")
    args = parser.parse_args()
    binaries = dict(one.split("=", 1) if "=" in one else ("infeed", one) for one in args.infeed)
    # Writes Parquet, and reads it too.
    python = venvs.find(args.setup, {}, set(), (venvs.PARTS,))[0]["parts"] if PYARROW.keys() & set(args.forms) else sys.executable
    print(describe_machine(sorted(os.sched_getaffinity(0))))
    with tempfile.TemporaryDirectory(prefix="infeed-opening-", dir=args.data) as root:
        for form in args.forms:
            (Path(root) / form).mkdir()
            subprocess.run([python, Path(__file__).with_name("scale_forms.py"), form, f"{root}/{form}", str(args.shards)], check=True)
        server = bucket.Bucket(root, 0)
        port = server.listen(args.delay / 1000)
        with tempfile.TemporaryDirectory() as kept:
            env = {**os.environ, **bucket.environment(port), "INFEED_MANIFEST_DIR": kept}
            for form in args.forms:
                compare(form, binaries, python, args, (server, port, env, kept))


def compare(form, binaries, python, args, place):
    server, port, env, kept = place
    columns = ["--columns", FORMS[form]] if FORMS[form] else ["--field", "image=bytes"]
    run = ["run", f"s3://{bucket.BUCKET}/{form}", *columns, "-b", "8", "--max-batches", "1", "-q"]
    readers = {name: [binary, *run] for name, binary in binaries.items()}
    if form in PYARROW and args.ranks == 1:
        readers["pyarrow"] = [python, "-c", PYARROW[form], str(port), f"{bucket.BUCKET}/{form}"]
    figures = {}
    for turn in range(args.rounds):
        order = list(readers)
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            shutil.rmtree(kept)
            os.mkdir(kept)
            for opening in ("first", "again"):
                figures.setdefault((name, opening), []).append(measure([readers[name]] * args.ranks, env, server))
    for (name, opening), rounds in figures.items():
        line = f"{form:12} {name:8} {opening:6}"
        for at, unit in enumerate(("s", "CPU s", "MB peak", "requests", "MB read")):
            column = [one[at] for one in rounds]
            line += f"  {statistics.median(column):.2f} ({min(column):.2f} to {max(column):.2f}) {unit}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
