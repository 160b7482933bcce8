#!/usr/bin/env python3
"""What opening costs by the number of records, up to the first sample of a shuffled epoch: infeed and others. See README.md."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import venvs
from scale_forms import SHARD

# Loaders. Each is a generator: it imports its library, is sent a folder, and gives the samples of a shuffled epoch.


def infeed():
    import infeed

    folder = yield
    yield from infeed.Loader(infeed.open(folder, fields={"image": "bytes"}), batch_size=1, shuffle=True)


def infeed_listed():
    import infeed

    folder = yield
    kept = os.environ["XDG_CACHE_HOME"] + "/listings"
    yield from infeed.Loader(infeed.open(folder, fields={"image": "bytes"}, manifests=kept), batch_size=1, shuffle=True)


def streaming():
    from streaming import StreamingDataset

    ranks()
    folder = yield
    yield from StreamingDataset(local=folder, shuffle=True, batch_size=1)


def litdata():
    import litdata

    ranks()
    folder = yield
    yield from litdata.StreamingDataset(folder, shuffle=True)


def grain():
    import grain

    folder = yield
    files = sorted(str(path) for path in Path(folder).glob("*.array_record"))
    yield from grain.MapDataset.source(grain.sources.ArrayRecordDataSource(files)).shuffle(seed=1)


def image_folder():
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder

    folder = yield
    files = ImageFolder(folder, loader=lambda path: Path(path).read_bytes())
    yield from DataLoader(files, batch_size=1, shuffle=True, collate_fn=list)


def infeed_coco():
    import infeed

    folder = yield
    resize = infeed.transforms.Resize((16, 16))
    yield from infeed.Loader(infeed.open(folder, masks=True), transform=resize, batch_size=1, shuffle=True)


def coco_detection():
    from torch.utils.data import DataLoader
    from torchvision.datasets import CocoDetection

    folder = yield
    files = CocoDetection(f"{folder}/train2017", f"{folder}/annotations/instances_train2017.json")
    yield from DataLoader(files, batch_size=1, shuffle=True, collate_fn=list)


def ranks():
    """Several processes are the ranks of one job, which some loaders need to be told."""
    import torch.distributed

    if int(os.environ["WORLD_SIZE"]) > 1:
        torch.distributed.init_process_group("gloo")


# Row of the table: the loader, the form of its data, and which group of `venvs.SCALE` has both.
LOADERS = {
    "infeed, tar": (infeed, "tar", "torch"),
    "infeed, MDS": (infeed, "mds", "torch"),
    "infeed, folder": (infeed, "folder", "torch"),
    "infeed, folder, listed": (infeed_listed, "folder", "torch"),
    "infeed, COCO": (infeed_coco, "coco", "torch"),
    "MosaicML streaming, MDS": (streaming, "mds", "streaming"),
    "litdata": (litdata, "litdata", "litdata"),
    "Grain, ArrayRecord": (grain, "array_record", "grain"),
    "torchvision ImageFolder": (image_folder, "folder", "torch"),
    "torchvision CocoDetection": (coco_detection, "coco", "torch"),
}


def child(row, folder):
    """Waits for a line between one step and the next, so that all processes are in the same."""

    def step(**told):
        print("FIGURES " + json.dumps(told), flush=True)
        sys.stdin.readline()

    samples = LOADERS[row][0]()
    next(samples)
    step()
    step(**memory())
    before = time.process_time()
    samples.send(folder)
    step(cpu=time.process_time() - before)
    step(**memory())


def memory():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return {"anonymous": kib["Anonymous"] * 1024, "pss": kib["Pss"] * 1024}


def measure(row, python, folder, processes, env):
    """Figures of one opening, as sums over so many processes: memory is what came since all was imported."""
    command = [python, __file__, "--child", row, folder]
    job = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 20000 + os.getpid() % 20000}
    children, steps = [], []
    with ExitStack() as stack:
        for rank in range(processes):
            ours = {name: str(value) for name, value in {**job, "RANK": rank, "LOCAL_RANK": rank}.items()}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            children.append(stack.enter_context(subprocess.Popen(command, text=True, env={**env, **ours}, **pipes)))
        try:
            for _ in range(4):
                steps.append([told(one) for one in children])
                for one in children:
                    one.stdin.write("\n")
                    one.stdin.flush()
        except RuntimeError:
            for one in children:
                one.kill()
            raise
    _, before, opened, after = steps
    more = {key: sum(one[key] for one in after) - sum(one[key] for one in before) for key in ("anonymous", "pss")}
    return {"cpu": sum(one["cpu"] for one in opened), **more}


def told(process):
    said = []
    for line in process.stdout:
        if line.startswith("FIGURES "):
            return json.loads(line.removeprefix("FIGURES "))
        said.append(line)
    raise RuntimeError(venvs.last_line("".join(said)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", required=True, help="infeed's")
    parser.add_argument("--setup", required=True, help="where the others are installed, and are installed to")
    parser.add_argument("--records", type=int, nargs="+", default=[100_000, 1_000_000], help="multiples of 1000")
    parser.add_argument("--processes", type=int, default=8, help="beside one alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", nargs="+", choices=LOADERS, default=list(LOADERS))
    parser.add_argument("--data", default="/dev/shm", help="where the data is made, until all is done")
    args = parser.parse_args()
    found, _ = venvs.find(args.setup, {}, {LOADERS[row][2] for row in args.rows} | {"torch"}, venvs.SCALE)
    rows = {row: (form, found[group]) for row, (_, form, group) in LOADERS.items() if row in args.rows and group in found}
    with tempfile.TemporaryDirectory(prefix="infeed-scale-", dir=args.data) as root:
        env = {**os.environ, "PYTHONPATH": f"{root}/wheel", "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": f"{root}/cache"}
        pip = [found["torch"], "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        subprocess.run([*pip, "--target", f"{root}/wheel", args.wheel], check=True)
        print(f"{'':24} {'records':>9} {'processes':>9}  opened {'   CPU s':28}{'   anonymous MB':28}{'   Pss MB'}")
        for records in args.records:
            compare(rows, records, Path(root) / str(records), args, env)


def compare(rows, records, root, args, env):
    """Takes turns. The first opening, later ones, and those of several processes at once."""
    made, figures = {}, {}
    for form, python in rows.values():
        folder = root / form
        if folder not in made:
            folder.mkdir(parents=True)
            subprocess.run([python, Path(__file__).with_name("scale_forms.py"), form, folder, str(records // SHARD)], check=True, env=env)
            made[folder] = set(os.listdir(folder))
            # A folder that changed in the last two seconds is not kept.
            time.sleep(3)
    for _ in range(args.rounds):
        for row, (form, python) in list(rows.items()):
            folder = root / form
            for kept in set(os.listdir(folder)) - made[folder]:
                (folder / kept).unlink()
            shutil.rmtree(env["XDG_CACHE_HOME"], ignore_errors=True)
            try:
                for how in (("first", 1), ("again", 1), ("again", args.processes)):
                    figures.setdefault((row, *how), []).append(measure(row, python, folder, how[1], env))
            except RuntimeError as error:
                print(f"{row} is left out: {error}", flush=True)
                del rows[row]
    for (row, opened, processes), rounds in figures.items():
        line = f"{row:24} {records:9} {processes:9}  {opened:6}"
        for key, unit in (("cpu", 1), ("anonymous", 1e6), ("pss", 1e6)):
            all_rounds = [one[key] / unit for one in rounds]
            line += f" {statistics.median(all_rounds):8.2f} ({min(all_rounds):.2f} to {max(all_rounds):.2f})".ljust(28)
        print(line.rstrip(), flush=True)
    shutil.rmtree(root)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()
