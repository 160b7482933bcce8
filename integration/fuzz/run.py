#!/usr/bin/env python3
"""Builds the fuzz targets, makes seeds, runs every target in turn until so many executions are done, and prints what was found.

    python3 integration/fuzz/run.py --executions 100000000 [--targets jpeg tiff …] [--jpegs FOLDER …]

With a nightly compiler the targets have AddressSanitizer; without one they are built by the stable one, with libFuzzer's
counters but without the sanitizer, and the table says so. Nothing needs cargo-fuzz, only a C++ compiler for libFuzzer.

Executions are not shared out evenly: a volume's header is read 100,000 times a second, a JPEG decoded in every way 700
times. Each target gets slices of time, in turn, until the sum is reached and each has had its least. What was found
(units that reach new code, crashes, counts) is kept in the folder, and another run goes on with it; the exit code is 1 when
there are crashes.
"""
import argparse, concurrent.futures, json, os, pathlib, re, shutil, subprocess, sys, threading, time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TRIPLE = "x86_64-unknown-linux-gnu" if os.uname().machine == "x86_64" else f"{os.uname().machine}-unknown-linux-gnu"
# What `cargo fuzz` passes: the counters that libFuzzer follows, and the checks of a debug build.
COVERAGE = [
    "-Cpasses=sancov-module",
    *(f"-Cllvm-args=-sanitizer-coverage-{what}" for what in ["level=4", "inline-8bit-counters", "pc-table", "trace-compares"]),
    "-Ccodegen-units=16", "-Cdebug-assertions", "-Coverflow-checks", "-Cdebuginfo=1", "--cfg=fuzzing",
]
DICTIONARIES = {"jpeg": "jpeg.dict", "jpeg_windows": "jpeg.dict"}
# A target whose findings nobody mends finds the same ones again.
MOST_CRASHES = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executions", type=int, default=10_000_000, help="over all targets, those of earlier runs included")
    parser.add_argument("--least", type=int, help="of each target [default: a thousandth of all]")
    parser.add_argument("--targets", nargs="*", help="[default: all that Cargo.toml lists]")
    parser.add_argument("--slice", type=int, default=60, help="seconds that a target runs before the next one [default: 60]")
    parser.add_argument("--seconds", type=int, help="end after so many, whatever was reached")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets at a time [default: cores]")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target/fuzz", help="build, corpus, crashes [default: target/fuzz]")
    parser.add_argument("--infeed", type=pathlib.Path, help="the command line, for making seeds [default: built]")
    parser.add_argument("--jpegs", nargs="*", default=[], help="folders of more JPEGs, for seeds")
    parser.add_argument("--toolchain", default="nightly", help="[default: nightly, with AddressSanitizer; else stable]")
    args = parser.parse_args()

    args.folder.mkdir(parents=True, exist_ok=True)
    known = re.findall(r'^\[\[bin\]\]\nname = "(\w+)"', (HERE / "Cargo.toml").read_text(), re.M)
    targets = args.targets or known
    if unknown := sorted(set(targets) - set(known)):
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(known)}")
    binaries, sanitizer = build(args, targets)
    seeds(args)
    state = args.folder / "executions.json"
    counts = json.loads(state.read_text()) if state.exists() else {}
    least = args.executions // 1000 if args.least is None else args.least
    fuzz(args, targets, binaries, counts, least, state)
    crashes = table(args, targets, counts, sanitizer)
    sys.exit(1 if crashes else 0)


def build(args, targets):
    """The folder of the targets' programs, and how memory is watched."""
    nightly = subprocess.run(["cargo", f"+{args.toolchain}", "--version"], capture_output=True, text=True)
    unstable = nightly.returncode == 0 and "nightly" in nightly.stdout
    flags = COVERAGE + (["-Zsanitizer=address"] if unstable else [])
    toolchain = [f"+{args.toolchain}"] if nightly.returncode == 0 else []
    environment = os.environ | {"RUSTFLAGS": " ".join(flags), "CARGO_TARGET_DIR": str(args.folder / "build")}
    if unstable:
        # libwebp too. Its C gets no counters: gcc has none that libFuzzer follows.
        environment["CFLAGS"] = f"{os.environ.get('CFLAGS', '')} -fsanitize=address -fno-omit-frame-pointer"
    command = ["cargo", *toolchain, "build", "--release", "--locked", "--target", TRIPLE]
    for target in targets:
        command += ["--bin", target]
    print("building the targets, minutes the first time …", flush=True)
    subprocess.run(command, cwd=HERE, env=environment, check=True)
    return args.folder / "build" / TRIPLE / "release", "AddressSanitizer" if unstable else "no sanitizer (no nightly compiler)"


def seeds(args):
    infeed = args.infeed
    if infeed is None:
        subprocess.run(["cargo", "build", "--locked", "-p", "infeed-cli"], cwd=ROOT, check=True)
        infeed = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/infeed"
    folder = args.folder / "seeds"
    shutil.rmtree(folder, ignore_errors=True)
    progressive = args.folder / "progressive"
    subprocess.run(["cargo", "run", "--locked", "-p", "infeed-jpeg", "--example", "progressive", "--", progressive], cwd=ROOT, check=True)
    subprocess.run([sys.executable, HERE / "seeds.py", folder, "--infeed", infeed, "--jpegs", progressive, *args.jpegs], check=True)


def fuzz(args, targets, binaries, counts, least, state):
    """Slices of all targets in turn, until there are enough executions."""
    lock, begun = threading.Lock(), time.monotonic()
    for folder in ("found", "crashes", "logs"):
        (args.folder / folder).mkdir(exist_ok=True)

    def total():
        return sum(count["executions"] for count in counts.values())

    def over():
        return args.seconds is not None and time.monotonic() - begun > args.seconds

    def one(target):
        with lock:
            count = counts.setdefault(target, {"executions": 0, "seconds": 0.0, "units": 0, "crashes": []})
            enough = total() >= args.executions and count["executions"] >= least
            left = max(args.executions - total(), least - count["executions"])
            if enough or over() or len(count["crashes"]) >= MOST_CRASHES:
                return False
        before = time.monotonic()
        found = run(args, binaries, target, left)
        with lock:
            count["executions"] += found["executions"]
            count["units"] += found["units"]
            count["seconds"] += time.monotonic() - before
            count["crashes"] += found["crashes"]
            state.write_text(json.dumps(counts, indent=1))
            words = f"{target}: {found['executions']:,} more, {total():,} of {args.executions:,}"
            print(words + "".join(f"; CRASH {crash}" for crash in found["crashes"]), flush=True)
        return True

    with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
        while any(list(pool.map(one, targets))):
            pass


def run(args, binaries, target, left):
    """One slice of a target."""
    found, seeds = args.folder / "found" / target, args.folder / "seeds" / target
    found.mkdir(exist_ok=True)
    prefix = args.folder / "crashes" / f"{target}-"
    before = set(prefix.parent.glob(prefix.name + "*"))
    command = [
        binaries / target, found, *([seeds] if seeds.is_dir() else []), f"-artifact_prefix={prefix}", f"-runs={left}",
        f"-max_total_time={args.slice}", "-max_len=32768", "-timeout=20", "-rss_limit_mb=2048", "-malloc_limit_mb=256", "-print_final_stats=1",
    ]
    if target in DICTIONARIES:
        command.append(f"-dict={HERE / DICTIONARIES[target]}")
    # Tests ask for memory that no machine has, and want an error; a process that ends has no leaks of interest.
    environment = os.environ | {"ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=0"}
    ended = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    words = ended.stderr.decode(errors="replace")
    crashes = sorted(path.name for path in set(prefix.parent.glob(prefix.name + "*")) - before)
    if ended.returncode != 0:
        (args.folder / "logs" / f"{crashes[0] if crashes else target}.log").write_text(words)
        crashes = crashes or [f"exit code {ended.returncode} without a file, see logs/{target}.log"]
    number = lambda name: int((re.findall(rf"stat::{name}:\s+(\d+)", words) or [0])[-1])
    return {"executions": number("number_of_executed_units"), "units": number("new_units_added"), "crashes": crashes}


def table(args, targets, counts, sanitizer):
    print(f"\n{'target':<14}{'executions':>14}{'exec/s':>10}{'new units':>11}{'crashes':>9}")
    rows = [(target, counts.get(target)) for target in targets if target in counts]
    for target, count in rows:
        rate = count["executions"] / max(count["seconds"], 1e-9)
        print(f"{target:<14}{count['executions']:>14,}{rate:>10,.0f}{count['units']:>11,}{len(count['crashes']):>9}")
    crashes = [crash for _, count in rows for crash in count["crashes"]]
    executions, units = (sum(count[key] for _, count in rows) for key in ("executions", "units"))
    print(f"{'all':<14}{executions:>14,}{'':>10}{units:>11,}{len(crashes):>9}   {sanitizer}")
    for crash in crashes:
        print(f"  {args.folder / 'crashes' / crash}")
    return crashes


if __name__ == "__main__":
    main()
