#!/usr/bin/env python3
"""Runs all GPU checks of infeed on this machine and writes report.md and report.json. Needs Python 3 and the kit only.

    run.py [DATA] --out DIR [--day first|second] [--only PART,…] [--quick] [--minutes N] [--nvjpeg VERSION] [--keep] [--strict]

DATA: class folders of JPEGs; without it the kit's photographs, or made-up ones. Every check is a process of its own with
a time limit, and so is every part: one that fails, crashes or hangs never stops the others. The report is written anew
after each part, so one that is cut off tells what is known by then. README.md says what the parts are, how a day with a
GPU goes and how to read the report.
"""

import argparse
import collections
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback

import report
from kit import FAIL, HERE, PASS, UNKNOWN, Ended, Kit, unpack, words

SANITIZERS = ["compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer", "/opt/nvidia/compute-sanitizer/compute-sanitizer"]
# Tests that decide whether figures mean anything, in this order; those about nvJPEG's pixels run with each version of it.
PIXELS = ("jpegs_of_the_engines", "a_cut_height", "jpegs_of_the_hybrid")
DECIDING = ("pixels_from_memory", *PIXELS, "steps_on_pictures", "arenas_are_written", "a_fixed_split")
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
    count = 48 if kit.small() else 4096 if kit.args.quick else 16384
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


def machine(kit):
    kit.bench("machine", ["machine", "bounds"], 60)


def engines(kit):
    """What nvJPEG does alone: no loader can be faster than it and the CPU."""
    # Apart: a library that crashes in one must not cost the others.
    for section in ("engines", "gpu_hybrid"):
        kit.bench("engines", [section], 90)


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


def deciding(kit):
    """The tests that decide; those about nvJPEG's pixels with each version of it, of which the newest that passes is used."""
    names = tests_of(kit)
    found, measured_with = {version: {} for version in kit.nvjpegs}, kit.nvjpeg
    test_of = {begin: next(name for name in names if name.startswith(f"on_gpu::{begin}")) for begin in DECIDING}
    versions = list(kit.nvjpegs) or [None]

    def run(begin):
        kit.check(test_of[begin], *one_test(kit, test_of[begin]))
        kit.write()

    run(DECIDING[0])
    try:
        for begin in PIXELS:
            for version in versions:
                if version is None:
                    run(begin)
                else:
                    kit.use_nvjpeg(version)
                    found[version][begin] = one_test(kit, test_of[begin])
                    print(f"  nvJPEG {version}, {begin}: {found[version][begin][0]}", flush=True)
    finally:
        # Also when time ended in between.
        if found:
            choose(kit, found, test_of, measured_with)
    for begin in DECIDING[len(PIXELS) + 1 :]:
        run(begin)
    if kit.nvjpeg != measured_with:
        # What was measured so far was another library.
        inspect(kit)
        engines(kit)


def choose(kit, found, test_of, before):
    """The newest nvJPEG whose tests pass; without any, one that fails none (a GPU without engines); else that from before."""
    results = {version: [result for result, _ in tests.values()] for version, tests in found.items()}
    passes = [version for version, each in results.items() if each == [PASS] * len(PIXELS)]
    kit.use_nvjpeg(passes[0] if passes else next((version for version, each in results.items() if FAIL not in each), before))
    for begin, (result, what) in found[kit.nvjpeg].items():
        kit.check(f"{test_of[begin]}, nvJPEG {kit.nvjpeg}", result, what)
    each = []
    for version, tests in found.items():
        said = {begin: result if result == PASS else f"{result}: {words(what, 400)}" for begin, (result, what) in tests.items()}
        kit.figure("tests", "nvJPEG versions", version, note=said or "not tried")
        failed = [begin for begin, (result, _) in tests.items() if result == FAIL]
        each.append(f"{version} {'fails ' + ', '.join(failed) if failed else 'passes' if version in passes else 'was not tried, or not to the end'}")
    # Without a pass the tests themselves have failed.
    kit.check("nvJPEG version", PASS if passes else UNKNOWN, f"{kit.nvjpeg} is used; {'; '.join(each)}")


def others(kit):
    """The remaining tests, each alone."""
    for name in tests_of(kit):
        if not name.startswith(tuple(f"on_gpu::{begin}" for begin in DECIDING)):
            kit.check(name, *one_test(kit, name))
            kit.write()


def photos(kit):
    cores = kit.report["machine"]["cores"]
    more = []
    if kit.args.quick:
        # Cores that are left for a trainer, and none.
        few = [1, 2] if kit.small() else [max(1, cores - 2), cores]
        more = ["--workers", ",".join(map(str, few))]
    kit.bench("photos", ["photos"], 300, more)


def connections(kit):
    """The loader with more of the driver's queues, which threads of their own streams share."""
    cores = 2 if kit.small() else kit.report["machine"]["cores"]
    more = ["--workers", str(cores), "--ways", "auto adaptive,cpu + hardware adaptive"]
    kit.bench("connections", ["photos"], 90, more, env={"CUDA_DEVICE_MAX_CONNECTIONS": "32"}, section="photos, 32 connections")


def peer(kit, name, folder=None):
    kit.unpack_peers()
    kit.script(f"peer_{name}", 120, kit.data, *(["--quick", "--seconds", "0.1" if kit.small() else "1"] if kit.args.quick else []), peer=folder)


def torchvision(kit):
    peer(kit, "torchvision")


def torchcodec(kit):
    peer(kit, "torchcodec", "torchcodec")


def nvimgcodec(kit):
    peer(kit, "nvimgcodec", "nvimgcodec")


def dali(kit):
    peer(kit, "dali")


def kernels(kit):
    kit.bench("kernels", ["kernels"], 120)


def recipes(kit):
    """Today's recipes on the GPU, and without it."""
    kit.bench("recipes", ["recipes"], 200)


def memory(kit):
    kit.bench("memory", ["memory"], 120)


def train(kit):
    """A training loop on 4 cores at the pace of a real step."""
    cores = set(sorted(os.sched_getaffinity(0))[:4])
    kit.script("step_torch", 60, "--batch", "256", "--steps", "15" if kit.args.quick else "40", cores=cores)
    step = report.best(report.of(kit.report, "step"))
    if step is None:
        kit.note("no step was measured with torch; 80 ms are taken for a step of 256 images")
    kit.bench("train", ["train"], 120, ["--step-ms", str(step["median"] if step else 80.0)], cores=cores)


def decoders(kit):
    for section in ("hybrid", "cpu"):
        kit.bench("decoders", [section], 60)


def infeed_run(kit, name, url, *more, limit=90):
    """The JSON of `infeed run`, or None and a failed check."""
    command = [kit.path("infeed"), "run", url, "--json", "-", *map(str, more)]
    code, out, both, _ = kit.process(name, command, limit)
    if code == 0:
        try:
            return json.loads(out)
        except ValueError:
            pass
    kit.check(name, FAIL, kit.ended(code, both))
    return None


def command_line(kit):
    """`infeed run` on both devices: what it delivers, and how fast."""
    known = kit.report["about"].get("known")
    folder = os.path.join(kit.temp, "cifar")
    if known:
        code, _, both, _ = kit.process("synth", [kit.path("infeed"), "synth", known["synth"][0], folder, *known["synth"][1:]], 60)
        if code != 0:
            kit.check("infeed synth", FAIL, kit.ended(code, both))
        elif found := infeed_run(kit, "checksum on the CPU", folder, *known["run"]):
            kit.check("the CPU's checksum is that of the machine that built the kit",
                      PASS if found["checksum"] == known["checksum"] else FAIL, f"{found['checksum']}, {known['checksum']} there")
            if kit.gpu:
                run = [word if word != "cpu" else "cuda:0" for word in known["run"]]
                if other := infeed_run(kit, "checksum on the GPU", folder, *run, "--split", "fixed"):
                    kit.check("rows of CIFAR on the GPU have the CPU's checksum",
                              PASS if other["checksum"] == found["checksum"] else FAIL, f"{other['checksum']}")
    if not kit.data:
        return
    batch = 8 if kit.small() else 256
    common = ["--batch-size", batch, "--shuffle", 7, "--dtype", "f16", "--checksum"]
    rates = {}
    cores = kit.report["machine"]["cores"]
    cpu = [infeed_run(kit, f"run on the CPU, {workers} workers", kit.data, "--device", "cpu", "--workers", workers, *common)
           for workers in (max(1, cores // 2), cores)]
    if all(cpu):
        same = cpu[0]["checksum"] == cpu[1]["checksum"]
        kit.check("photographs on the CPU have one checksum for any workers", PASS if same else FAIL, cpu[0]["checksum"])
        rates["CPU"] = cpu[1]
    if kit.gpu:
        fixed = [infeed_run(kit, f"run on the GPU, fixed split, {n}", kit.data, "--device", "cuda:0", "--split", "fixed", *common) for n in (1, 2)]
        if all(fixed):
            same = fixed[0]["checksum"] == fixed[1]["checksum"]
            kit.check("two runs with a fixed split have one checksum", PASS if same else FAIL, f"{fixed[0]['checksum']}, {fixed[1]['checksum']}")
            rates["GPU, fixed split, with checksum"] = fixed[1]
        plain = [word for word in common if word != "--checksum"]
        if adaptive := infeed_run(kit, "run on the GPU, adaptive split", kit.data, "--device", "cuda:0", "--epochs", 1 if kit.small() else 4, *plain):
            rates["GPU, adaptive split"] = adaptive
    for name, found in rates.items():
        rate = found["samples_per_second"]
        keys = ("device", "seconds", "au", "bottleneck", "cpu_seconds", "build_seconds", "first_batch_seconds", "peak_rss_bytes", "stages", "gpu", "bad_sample_count")
        kit.report["figures"].append({"part": "run", "section": "infeed run", "name": name, "unit": "images/s", "median": rate,
                                      "low": rate, "high": rate, "runs": 1, "more": {key: found.get(key) for key in keys}})


def units(kit):
    """The unit tests."""
    # Where the mock is, all of them have run.
    few = ["sys::"] if kit.is_mock else []
    code, out, both, _ = kit.process("units", [kit.path("unit-tests"), "--test-threads=8", *few], 120)
    results = [line for line in out.splitlines() if line.startswith("test result")]
    kit.check("unit tests", PASS if code == 0 else FAIL, results[0] if code == 0 and results else kit.ended(code, both))


def sanitizer(kit):
    """compute-sanitizer's memcheck over the shorter tests."""
    tool = next((path for path in map(shutil.which, SANITIZERS) if path), None)
    if not tool:
        kit.check("compute-sanitizer", UNKNOWN, "not on this machine")
        return
    names = [name for name in tests_of(kit) if any(word in name for word in ("files_that", "cut_height", "engines_are", "hybrid"))]
    for name in names:
        command = [tool, "--tool", "memcheck", "--error-exitcode", "66", kit.path("integration"), name, "--exact", "--nocapture", "--test-threads=1"]
        code, _, both, _ = kit.process(f"memcheck {name}", command, 100)
        lines = [line for line in both.splitlines() if line.startswith("=====")]
        if any("not supported" in line.lower() for line in lines):
            kit.check("compute-sanitizer", UNKNOWN, f"it refuses this device: {words(' '.join(lines))}")
            return
        summary = [line for line in lines if "ERROR SUMMARY" in line]
        clean = code == 0 and any("0 errors" in line for line in summary)
        result = PASS if clean else FAIL if summary and not clean else UNKNOWN
        kit.check(f"memcheck {name}", result, words(" ".join(summary or lines[-6:])) if lines else kit.ended(code, both))


# `limit`: seconds in a quick run, four times as many in a whole one. `needs`: what it usually takes in a quick run, kept
# free by those before it. The most wanted first; the first day's report says whether the second is worth its time.
Part = collections.namedtuple("Part", "name run day limit needs gpu_only")
PARTS = [
    Part("data", data, 0, 40, 5, False),
    Part("machine", machine, 1, 40, 10, True),
    Part("engines", engines, 1, 110, 70, True),
    Part("tests", deciding, 1, 180, 90, False),
    Part("torchvision", torchvision, 1, 45, 30, True),
    Part("torchcodec", torchcodec, 1, 30, 20, True),
    Part("nvimgcodec", nvimgcodec, 1, 60, 40, True),
    # Where it is installed: it is too large to be taken along.
    Part("dali", dali, 1, 45, 3, True),
    Part("photos", photos, 1, 165, 125, True),
    Part("connections", connections, 1, 70, 45, True),
    Part("kernels", kernels, 2, 45, 15, True),
    Part("recipes", recipes, 2, 90, 45, True),
    Part("memory", memory, 2, 60, 25, True),
    Part("train", train, 2, 100, 60, True),
    Part("others", others, 2, 180, 60, False),
    Part("run", command_line, 2, 60, 25, False),
    Part("decoders", decoders, 2, 60, 25, True),
    Part("units", units, 2, 40, 10, False),
    Part("sanitizer", sanitizer, 2, 60, 10, True),
]


def run_part(kit, part, later):
    """Runs a part in its own time, which leaves the later ones what they need: all of it, or as large a share as its own."""
    begin, left = time.monotonic(), max(0.0, kit.left() - 3)
    room = min(part.limit * (1 if kit.args.quick else 4), left - later * min(1.0, left / (part.needs + later)))
    if part.gpu_only and kit.gpu is None:
        end = "left out: no GPU"
    elif room < 2:
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
    parser.add_argument("--day", choices=("first", "second"), help="half of the parts, in nine minutes; means --quick")
    parser.add_argument("--only", help=f"parts, with commas between: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="fewer settings and runs")
    parser.add_argument("--minutes", type=float, help="time for all of it; default 9 with --day, 18 with --quick, else 60")
    parser.add_argument("--nvjpeg", metavar="VERSION", help="one of the kit's versions, or a file; default: the newest whose tests pass")
    parser.add_argument("--keep", action="store_true", help="leave the unpacked files and data where they are")
    parser.add_argument("--strict", action="store_true", help="fail when anything was left out or not measured")
    args = parser.parse_args()
    args.quick = args.quick or bool(args.day)
    args.minutes = args.minutes or (9 if args.day else 18 if args.quick else 60)
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

    def stop(*_):
        if kit.current:
            os.killpg(kit.current.pid, signal.SIGKILL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        kit.unpack()
        run_part(kit, Part("devices", devices, 0, 60, 5, False), 0)
        for at, part in enumerate(parts):
            # Without data there is nothing to be left for.
            run_part(kit, part, 0 if part.day == 0 else sum(later.needs for later in parts[at + 1 :]))
        if len(kit.nvjpegs) > 1 and not any(part.name == "tests" for part in parts):
            kit.note(f"nvJPEG {kit.nvjpeg} was used without the tests that choose one of {', '.join(kit.nvjpegs)}; --nvjpeg names another")
        if kit.gpu or args.strict:
            try:
                compare(kit, [part.name for part in parts])
            except Exception as error:  # a figure of a shape that nobody thought of
                kit.log.write(traceback.format_exc())
                kit.check("targets", FAIL, f"{type(error).__name__}: {words(str(error))}")
        if args.day == "first":
            kit.note(f"the second call: run.py --day second --nvjpeg {kit.nvjpeg} --out …")
    except KeyboardInterrupt:
        kit.check("run.py", FAIL, "stopped from outside")
    finally:
        kit.write()
        try:
            print(report.short(kit.report, kit.out), flush=True)
        finally:
            kit.close()
    return 1 if any(check["result"] == FAIL for check in kit.report["checks"]) else 0


if __name__ == "__main__":
    sys.exit(main())
