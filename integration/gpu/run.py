#!/usr/bin/env python3
"""Runs the GPU checks of infeed on this machine and writes report.md and report.json. Needs Python 3 and the kit only.

    run.py [DATA] --out DIR [--day first|second] [--only PART,…] [--seconds N] [--nvjpeg VERSION] [--full] [--keep] [--strict]

DATA: class folders of JPEGs; without it the kit's photographs, or made-up ones. A day ends within 285 seconds. Every check is
a process of its own with a time limit: one that fails, crashes or hangs never stops the others. The report is written
anew after each part, so one that is cut off tells what is known by then. README.md says what the parts are, how a day
with a GPU goes and how to read the report.
"""

import argparse
import collections
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import report
from kit import FAIL, HERE, PASS, UNKNOWN, Ended, Kit, unpack, words

# Of a day, which a call of 290 seconds must hold whole.
DAY = 285
SANITIZERS = ["compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer", "/opt/nvidia/compute-sanitizer/compute-sanitizer"]
# Tests that decide whether figures mean anything, in this order; and those of them that another nvJPEG may change.
DECIDING = ("pixels_from_memory", "jpegs_of_the_engines", "a_cut_height", "arenas_are_written", "steps_on_pictures", "a_fixed_split")
OF_NVJPEG = ("jpegs_of_the_engines", "a_cut_height")
OTHERS = ("a_damaged_image", "jpegs_of_the_hybrid")
MORE = ("a_batch_is_reused", "jpegs_of_the_cpu_class", "mixed_batches", "a_stream_dropped", "device_memory_may_end")
NO_NVCUVID = ("nvJPEG opens it by name and finds no engines without it. In a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility,video; "
              "else install the driver's libraries for video (libnvidia-decode on Ubuntu)")

# ---- the parts ----------------------------------------------------------------------------------------------------


def inspect(kit):
    """What `infeed inspect --devices` finds, with the nvJPEG that is used now; None, and a check, where it fails."""
    code, out, both, _ = kit.process("devices", [kit.path("infeed"), "inspect", "--devices", "--json", "-"], 60)
    if code != 0:
        kit.check("infeed inspect --devices", FAIL, kit.ended(code, both))
        return None
    # JSON to stdout, the table to stderr.
    try:
        found = json.loads(out)
    except ValueError:
        kit.check("infeed inspect --devices", FAIL, f"no JSON: {words(out)}")
        return None
    found = found.get("devices") or found
    machine = kit.report["machine"]
    machine["devices"] = found
    machine["nvjpeg"] = json.dumps(found.get("nvjpeg") or found.get("nvjpeg_note"))
    machine["why"] = found.get("note")
    return found


def devices(kit):
    """`infeed inspect --devices`, and the library without which a GPU's engines are not seen."""
    found, machine = inspect(kit), kit.report["machine"]
    if found is None:
        return
    gpus = found.get("gpus") or []
    if not gpus:
        kit.check("infeed inspect --devices", UNKNOWN, f"no GPU: {found.get('note')}; only what needs none is run")
        return
    kit.gpu = gpus[0]
    kit.is_mock = "mock" in gpus[0]["name"]
    machine["gpu"] = f"{gpus[0]['name']}, {gpus[0]['memory_bytes'] / 2**30:.1f} GiB"
    kit.check("infeed inspect --devices", PASS, machine["gpu"])
    said = found.get("nvcuvid") or found.get("nvcuvid_note")
    infeed = f"; infeed finds {said}" if said else ""
    if machine["libnvcuvid.so.1"] and not found.get("nvcuvid_note"):
        kit.check("libnvcuvid.so.1", PASS, machine["libnvcuvid.so.1"] + infeed)
    else:
        why = machine.get("libnvcuvid.so.1_why")
        kit.check("libnvcuvid.so.1", UNKNOWN if kit.is_mock else FAIL, f"{why}{infeed}; {NO_NVCUVID}")


def data(kit):
    """Photographs on a RAM disk, repeated until there are enough."""
    source = kit.args.data
    if source:
        kit.report["source"] = source
    elif os.path.exists(os.path.join(HERE, "photos.tar")):
        source = os.path.join(kit.temp, "photos")
        unpack(os.path.join(HERE, "photos.tar"), source)
        kit.report["source"] = "the kit's photographs"
    else:
        source = os.path.join(kit.temp, "photos")
        code, _, both, _ = kit.process("synth", [kit.path("infeed"), "synth", "imagenet", source, "--count", str(24 if kit.small() else 300), "--classes", "10"], 120)
        if code != 0:
            raise RuntimeError(f"photographs can't be made: {kit.ended(code, both)}")
        kit.report["source"] = "infeed synth imagenet"
    files = []
    for where, _, names in os.walk(source):
        files += [os.path.join(where, name) for name in names if name.lower().endswith((".jpg", ".jpeg"))]
    files.sort()
    if not files:
        raise RuntimeError(f"no JPEG below {source}")
    count = 48 if kit.small() else 16384
    size = sum(map(os.path.getsize, files)) / len(files)
    shm = "/dev/shm"
    room = shutil.disk_usage(shm).free if os.path.isdir(shm) else 0
    if room < 2 * count * size:
        # Better fewer on the RAM disk than none of them there, as long as they make some batches.
        if room > 3 * 2048 * size:
            count = 2048
        else:
            shm = kit.temp
    kit.data = tempfile.mkdtemp(prefix="infeed-photos-", dir=shm)
    for n in range(count):
        path = files[n % len(files)]
        folder = os.path.join(kit.data, os.path.basename(os.path.dirname(path)) or "class")
        os.makedirs(folder, exist_ok=True)
        shutil.copyfile(path, os.path.join(folder, f"{n:06}-{os.path.basename(path)}"))
    kit.records = count
    kit.env["INFEED_PHOTOS"] = source
    print(f"  {count} files, {count * size / 1e6:.0f} MB at {kit.data}", flush=True)


def smoke(kit):
    """The Python package: its rows against the CPU's, and what PyTorch does with its tensors."""
    # The mock's nvJPEG makes gray: there the CPU decodes.
    kit.wheel("smoke", 45, env={"INFEED_NVJPEG": "none"} if kit.is_mock else None)


def engines(kit):
    """What nvJPEG does alone: no loader can be faster than it and the CPU."""
    kit.bench("engines", ["machine", "bounds", "engines"], 60)


def tests_of(kit):
    code, out, both, _ = kit.process("list", [kit.path("integration"), "on_gpu::", "--list"], 60)
    names = [line.rsplit(":", 1)[0] for line in out.splitlines() if line.endswith(": test")]
    if not names:
        raise RuntimeError(f"no tests: {kit.ended(code, both)}")
    return names


def one_test(kit, name, limit=120):
    """Runs a test of `on_gpu::` alone: result and what there is to say."""
    command = [kit.path("integration"), name, "--exact", "--nocapture", "--test-threads=1"]
    # On the mock a test starts itself once more; here the mock is there already, and its figures are wanted.
    env = {"INFEED_MOCK_CHILD": name} if kit.is_mock else None
    code, _, both, seconds = kit.process(name, command, limit, env=env)
    said = []
    for line in both.splitlines():
        if line.startswith("figure "):
            try:
                figure = json.loads(line[7:])
            except ValueError:
                continue
            if figure["name"] != "gpu":
                said.append(f"{figure['name']}: {json.dumps(figure['value'])}")
                more = {"nvjpeg": kit.nvjpeg} if kit.nvjpeg else {}
                kit.figure("tests", name, figure["name"], note=figure["value"], **more)
        elif line.startswith("skipped: "):
            said.append(line)
    real = "figure {\"name\":\"gpu\"" in both
    where = f"{seconds:.1f} s" if real else f"{seconds:.1f} s, on the mock GPU"
    if code != 0:
        # The words of the panic; of the child's on the mock, which is told by the parent's.
        at = both.rfind("panicked at")
        panic = both[at : at + 1200].split("stack backtrace")[0] if at >= 0 else both[-600:]
        end = "ran past its limit" if code is None else f"died of signal {-code}" if code < 0 else "failed"
        return FAIL, f"{end} after {where}; {words(panic, 1200)}; {'; '.join(said)}"
    if not real or any(line.startswith("skipped") for line in said):
        return PASS if kit.is_mock else UNKNOWN, f"{where}; {'; '.join(said)}"
    return PASS, f"{where}; {'; '.join(said)}"


def tests(kit, begins, limit=35):
    """Those whose names begin so, each alone."""
    names = tests_of(kit)
    for begin in begins:
        name = next(name for name in names if name.startswith(f"on_gpu::{begin}"))
        kit.check(f"{name}, nvJPEG {kit.nvjpeg}" if begin in OF_NVJPEG else name, *one_test(kit, name, limit))
        kit.write()


def deciding(kit):
    """The tests that decide."""
    tests(kit, DECIDING)


def others(kit):
    """Other tests that need a real GPU."""
    tests(kit, OTHERS, 50)


def more(kit):
    """Those that have little to fear of one."""
    tests(kit, MORE, 30)


def thousand(kit):
    """Free memory before and after a thousand batches."""
    tests(kit, ("a_thousand_batches",), 45)


def newer(kit):
    """The kit's newest nvJPEG: its pixels, and what it does alone."""
    used, newest = kit.nvjpeg, next(reversed(kit.nvjpegs), None)
    if newest in (used, None):
        kit.note("the kit has no other nvJPEG")
        return
    try:
        kit.use_nvjpeg(newest)
        tests(kit, OF_NVJPEG)
        kit.bench("newer", ["engines"], 30)
    finally:
        kit.use_nvjpeg(used)


def photos(kit):
    """Photographs to batches, by who decodes, beside the engines alone and the CPU alone."""
    # Two cores are for those who feed the engines, as the loader leaves them by itself.
    ways(kit, "photos", "bare,auto adaptive,cpu + raw,nvjpeg-hardware only,no GPU", max(1, kit.workers() - 2), kit.workers())


def ways(kit, part, names, *workers):
    kit.bench(part, ["photos"], 90, ["--workers", ",".join(map(str, workers or [kit.workers()])), "--ways", names])


def branches(kit):
    """What the day's own figures ask for, so that nobody has to change the second call."""
    if not kit.report["machine"]["libnvcuvid.so.1"]:
        # Without engines: what else of nvJPEG decodes.
        kit.bench("branches", ["gpu_hybrid", "hybrid"], 25)
    if any(check["name"].startswith("smoke") and check["result"] == FAIL for check in kit.report["checks"]):
        sanitize(kit, "memcheck", "smoke", kit.wheel_command("smoke"))
    ours, raw = (report.way(kit.report, name) for name in ("auto adaptive", "cpu + raw"))
    if ours and raw and ours["median"] < raw["median"]:
        # Threads of the engines may want cores of their own.
        ways(kit, "branches", "auto adaptive,cpu + raw", max(1, kit.workers() - 2), kit.workers())


def resnet(kit):
    """ResNet-50 on batches that infeed makes on the GPU, beside a batch that stays there."""
    kit.wheel("resnet", 42, "--feed", "infeed-cuda")


def feeds(kit):
    """The same where the engines decode first; on batches in host memory; and on those of torch's own loader."""
    for feed in ("infeed-gpu", "infeed-cpu", "dataloader"):
        kit.wheel("resnet", 35, "--feed", feed)


def graph(kit):
    """The same where the trainer's step is one launch."""
    for feed in ("infeed-gpu", "infeed-cuda"):
        kit.wheel("resnet", 30, "--feed", feed, "--graph", "--steps", 40, part="graph")


def connections(kit):
    """The same with one of the driver's queues, as others' trainers ask for, and with as many as there can be."""
    for count in ("1", "32"):
        kit.wheel("resnet", 30, "--feed", "infeed-cuda", "--steps", 30, env={"CUDA_DEVICE_MAX_CONNECTIONS": count}, part=f"{count} connections")


def rates(kit):
    kit.wheel("rates", 30, "--seconds", 2)


def threads(kit):
    """The CPU alone by threads, and torch's own loader on all of them."""
    kit.wheel("cpu", 40)
    kit.wheel("dataloader", 35)


def peer(kit, name):
    kit.unpack_peers()
    kit.peer(name, 60, kit.data, "--quick", "--seconds", "0.1" if kit.small() else "0.7")


def torchvision(kit):
    peer(kit, "torchvision")


def nvimgcodec(kit):
    ways(kit, "nvimgcodec", "auto adaptive")
    peer(kit, "nvimgcodec")


def dali(kit):
    peer(kit, "dali")


def kernels(kit):
    kit.bench("kernels", ["kernels"], 45)


def recipes(kit):
    """Today's recipes on the GPU, and without it."""
    kit.bench("recipes", ["recipes"], 60)


def memory(kit):
    kit.bench("memory", ["memory"], 40, ["--workers", str(min(4, kit.workers()))])


def sanitize(kit, check, name, command):
    """compute-sanitizer over a process; False where it can't be had."""
    tool = next((path for path in map(shutil.which, SANITIZERS) if path), None)
    if not tool:
        kit.check("compute-sanitizer", UNKNOWN, "not on this machine")
        return False
    code, _, both, _ = kit.process(check, [tool, "--tool", check, "--error-exitcode", "66", *command], 15, env=kit.package_env())
    lines = [line for line in both.splitlines() if line.startswith("=====")]
    if any("not supported" in line.lower() for line in lines):
        kit.check("compute-sanitizer", UNKNOWN, f"it refuses this device: {words(' '.join(lines))}")
        return False
    summary = [line for line in lines if "SUMMARY" in line]
    clean = code == 0 and any("0 errors" in line or "0 hazards" in line for line in summary)
    kit.check(f"{check} {name}", PASS if clean else FAIL if summary else UNKNOWN,
              words(" ".join(summary or lines[-6:])) if lines else kit.ended(code, both))
    return True


def sanitizer(kit):
    """The kernels: races between threads, and memory."""
    name = next(name for name in tests_of(kit) if name.startswith("on_gpu::files_that"))
    command = [kit.path("integration"), name, "--exact", "--nocapture", "--test-threads=1"]
    all(sanitize(kit, check, name, command) for check in ("racecheck", "memcheck"))


# `limit`: seconds, half as much again as it usually takes; four times as many with --full. The most wanted first: what is late
# costs those at the end.
Part = collections.namedtuple("Part", "name run day limit gpu_only")
PARTS = [
    Part("data", data, 0, 20, False),
    Part("tests", deciding, 1, 100, False),
    Part("smoke", smoke, 1, 30, True),
    Part("photos", photos, 1, 75, True),
    Part("resnet", resnet, 1, 42, True),
    Part("torchvision", torchvision, 1, 35, True),
    Part("threads", threads, 1, 60, False),
    Part("feeds", feeds, 1, 80, True),
    Part("rates", rates, 1, 35, True),
    Part("branches", branches, 1, 40, True),
    Part("engines", engines, 2, 30, True),
    Part("nvimgcodec", nvimgcodec, 2, 40, True),
    Part("thousand", thousand, 2, 30, False),
    Part("kernels", kernels, 2, 10, True),
    Part("recipes", recipes, 2, 40, True),
    Part("graph", graph, 2, 60, True),
    Part("connections", connections, 2, 55, True),
    Part("newer", newer, 2, 50, True),
    Part("sanitizer", sanitizer, 2, 30, True),
    Part("others", others, 2, 100, False),
    Part("memory", memory, 2, 30, True),
    Part("more", more, 2, 60, False),
    # Where it is installed: it is too large to be taken along.
    Part("dali", dali, 2, 45, True),
]
# Seconds for the report.
LAST = 4


def run_part(kit, part):
    """Runs a part in its own time, or in what is left of all."""
    begin = time.monotonic()
    room = min(part.limit * (4 if kit.args.full else 1), kit.left() - LAST)
    if part.gpu_only and kit.gpu is None:
        end = "left out: no GPU"
    elif room < 3:
        end = "left out: no time"
    else:
        print(f"\n== {part.name} ({kit.left():.0f} s left, at most {room:.0f} for it)", flush=True)
        kit.part_end = begin + room
        end = "done"
        try:
            part.run(kit)
        except Ended as why:
            end = f"cut short: {why}"
        except Exception as error:  # whatever it is, the next part may work
            kit.log.write(traceback.format_exc())
            end = f"failed: {type(error).__name__}: {words(str(error))}"
    if end != "done":
        print(f"  {part.name}: {end}", flush=True)
        if end.startswith("failed"):
            kit.check(f"part {part.name}", FAIL, end)
        elif not end.endswith("no GPU"):
            kit.check(f"part {part.name}", UNKNOWN, end)
    kit.report["parts"].append({"name": part.name, "seconds": time.monotonic() - begin, "end": end})
    kit.write()


def compare(kit, parts):
    """Figures against the targets; with --strict, whether everything was measured that should have been."""
    print("\n== targets", flush=True)
    for name, part, value, holds, what in report.targets(kit.report):
        if part not in parts:
            continue
        result = UNKNOWN if value is None or kit.is_mock else PASS if holds(value) else FAIL
        shown = "not measured" if value is None else f"{value:,.4g}"
        if kit.args.strict and value is None:
            result = FAIL
        kit.check(f"target: {name}", result, f"{shown} ({what})" + (", a mock: the figure means nothing" if kit.is_mock else ""))
    if kit.args.strict:
        for what in report.missing(kit.report, parts):
            kit.check("--strict", FAIL, what)
        for part in kit.report["parts"]:
            if part["end"] != "done":
                kit.check("--strict", FAIL, f"part {part['name']}: {part['end']}")


def arguments():
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="class folders of JPEGs")
    parser.add_argument("--out", required=True, help="folder for the report")
    parser.add_argument("--day", choices=("first", "second"), help=f"half of the parts, in {DAY} seconds; default both, one behind the other")
    parser.add_argument("--only", help=f"parts, with commas between: {', '.join(names)}")
    parser.add_argument("--seconds", type=float, help="time for all of it")
    parser.add_argument("--nvjpeg", metavar="VERSION", help="one of the kit's versions, or a file; default: the oldest")
    parser.add_argument("--full", action="store_true", help="more settings and runs, in four times the time")
    parser.add_argument("--keep", action="store_true", help="leave the unpacked files and data where they are")
    parser.add_argument("--strict", action="store_true", help="fail when anything was left out or not measured")
    args = parser.parse_args()
    args.seconds = args.seconds or DAY * (1 if args.day else 2) * (4 if args.full else 1)
    if args.data:
        args.data = os.path.abspath(args.data)
    args.only = args.only.split(",") if args.only else None
    unknown = [name for name in args.only or [] if name not in names]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(names)}")
    return args


def main():
    args = arguments()
    day = {None: (0, 1, 2), "first": (0, 1), "second": (0, 2)}[args.day]
    # Others work on the photographs.
    parts = [part for part in PARTS if part.day in day and (part.name == "data" or not args.only or part.name in args.only)]
    kit = Kit(args)
    # Reads PyTorch from a cold disk while the first parts run.
    warm = subprocess.Popen([sys.executable, "-c", "import torch, torchvision"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(*_):
        if kit.current:
            os.killpg(kit.current.pid, signal.SIGKILL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        kit.unpack()
        run_part(kit, Part("devices", devices, 0, 30, False))
        for part in parts:
            run_part(kit, part)
        if kit.gpu or args.strict:
            try:
                compare(kit, [part.name for part in parts])
            except Exception as error:  # a figure of a shape that nobody thought of
                kit.log.write(traceback.format_exc())
                kit.check("targets", FAIL, f"{type(error).__name__}: {words(str(error))}")
    except KeyboardInterrupt:
        kit.check("run.py", FAIL, "stopped from outside")
    finally:
        warm.kill()
        kit.write()
        try:
            print(report.short(kit.report, kit.out), flush=True)
        finally:
            kit.close()
    return 1 if any(check["result"] == FAIL for check in kit.report["checks"]) else 0


if __name__ == "__main__":
    sys.exit(main())
