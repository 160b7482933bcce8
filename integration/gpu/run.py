#!/usr/bin/env python3
"""Runs all GPU checks of infeed on this machine and writes report.md and report.json. Needs Python 3 and the kit only.

    run.py [DATA] --out DIR [--only PART,…] [--quick] [--minutes N] [--keep]

DATA: class folders of JPEGs; without it the kit's photographs, or made-up ones. Every check is a process of its own with
a time limit: one that fails, crashes or hangs never stops the others. The report is written anew after each part, so one
that is cut off tells what is known by then. README.md says what the parts are and how to read the report.
"""

import argparse
import ctypes
import glob
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
# Where the driver's library is on machines whose loader is not told.
DRIVER_FOLDERS = ["/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/compat"]
SANITIZERS = ["compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer", "/opt/nvidia/compute-sanitizer/compute-sanitizer"]
# Output of a process that is kept, from its end.
KEPT = 60_000
PASS, FAIL, UNKNOWN = "pass", "FAIL", "unknown"


class Ended(Exception):
    """The time is up, or somebody wants us to end."""


def words(text, most=300):
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most // 2] + " … " + text[-most // 2 :]


class Kit:
    def __init__(self, args):
        self.args = args
        self.begin = time.monotonic()
        self.end = self.begin + args.minutes * 60
        self.out = os.path.abspath(args.out)
        os.makedirs(self.out, exist_ok=True)
        self.log = open(os.path.join(self.out, "log.txt"), "w")
        self.temp = tempfile.mkdtemp(prefix="infeed-kit-")
        self.report = {"about": {}, "machine": {}, "command": " ".join(sys.argv), "parts": [], "checks": [], "figures": [], "notes": []}
        # Addresses of stripped programs say nothing.
        self.env = {**os.environ, "RUST_BACKTRACE": "0"}
        # Kernels are compiled once for all processes, and nothing stays behind.
        self.env.setdefault("CUDA_CACHE_PATH", os.path.join(self.temp, "kernels"))
        self.data = None
        self.records = 0
        self.gpu = None
        self.is_mock = False
        self.current = None
        self.step_ms = None

    # ---- processes ------------------------------------------------------------------------------------------------

    def left(self):
        return self.end - time.monotonic()

    def process(self, name, command, limit, env=None, cores=None):
        """Return code (None: it ran past its limit), standard output, both outputs together, seconds."""
        limit = min(limit, self.left() - 2)
        if limit < 2:
            raise Ended("no time is left")
        begin = time.monotonic()
        prepare = (lambda: os.sched_setaffinity(0, cores)) if cores else None
        with open(os.path.join(self.temp, "out"), "w+b") as out, open(os.path.join(self.temp, "err"), "w+b") as err:
            try:
                # A group of its own: what it started ends with it.
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                                         env={**self.env, **(env or {})}, preexec_fn=prepare, cwd=self.temp)
            except OSError as error:
                return -1, "", f"{command[0]} does not start: {error}", 0.0
            self.current = child
            try:
                code = child.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
                self.current = None
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        seconds = time.monotonic() - begin
        both = texts[0] + texts[1]
        end = "killed at its limit" if code is None else f"returned {code}"
        self.log.write(f"\n==== {name}: {' '.join(map(str, command))}\n{both[-KEPT:]}\n---- {end} after {seconds:.1f} s\n")
        self.log.flush()
        return code, texts[0], both, seconds

    def ended(self, code, both):
        """How a process ended, in words."""
        if code is None:
            return "ran past its limit"
        if code < 0:
            return f"died of signal {-code}; {words(both[-600:])}"
        return f"returned {code}; {words(both[-600:])}"

    # ---- what is found --------------------------------------------------------------------------------------------

    def check(self, name, result, what=""):
        self.report["checks"].append({"name": name, "result": result, "what": what})
        print(f"  {result:7} {name}{': ' + words(what, 200) if what else ''}", flush=True)

    def target(self, name, value, holds, what):
        """A check against a number of the issue that infeed was built for; unknown where nothing was measured."""
        if value is None and self.args.only:
            return
        result = UNKNOWN if value is None or self.is_mock else PASS if holds(value) else FAIL
        shown = "not measured" if value is None else f"{value:,.4g}"
        self.check(name, result, f"{shown} ({what})" + (", a mock: the figure means nothing" if self.is_mock else ""))

    def note(self, text):
        self.report["notes"].append(text)
        print(f"  note: {text}", flush=True)

    def lines(self, part, text):
        """Takes the lines of JSON that a bench or a peer printed."""
        found = 0
        for line in text.splitlines():
            if not line.startswith("{"):
                continue
            try:
                figure = json.loads(line)
            except ValueError:
                continue
            if "name" in figure and figure["name"] != "seconds":
                figure["part"] = part
                self.report["figures"].append(figure)
                found += 1
                if "error" in figure:
                    self.check(f"{part}: {figure.get('section', '')} {figure['name']}", FAIL, figure["error"])
                elif "median" in figure:
                    print(f"  {figure['name']}: {figure['median']:,.5g} {figure['unit']}", flush=True)
        return found

    def median(self, section, test, best=max):
        """The best median of the figures of a section whose name passes."""
        found = [f["median"] for f in self.report["figures"]
                 if f.get("section") == section and "median" in f and test(f["name"])]
        return best(found) if found else None

    def bench(self, part, sections, limit, more=(), cores=None):
        command = [self.path("bench-gpu"), *sections, *more]
        if self.args.quick:
            command.append("--quick")
        if self.data:
            command += ["--photos", self.data]
        code, out, both, _ = self.process(part, command, limit, cores=cores)
        found = self.lines(part, out)
        if code != 0:
            self.check(f"{part}: bench-gpu {' '.join(sections)}", FAIL, self.ended(code, both))
        elif not found:
            self.check(f"{part}: bench-gpu {' '.join(sections)}", UNKNOWN, words(both))

    def path(self, name):
        return os.path.join(self.binaries, name)

    # ---- the report -----------------------------------------------------------------------------------------------

    def write(self):
        report = self.report
        report["seconds"] = time.monotonic() - self.begin
        for name, text in (("report.json", json.dumps(report, indent=1)), ("report.md", self.markdown())):
            path = os.path.join(self.out, name)
            with open(path + ".new", "w") as file:
                file.write(text + "\n")
            os.replace(path + ".new", path)

    def head(self):
        about, machine = self.report["about"], self.report["machine"]
        lines = [
            f"- infeed: commit {about.get('commit')}{' (dirty)' if about.get('dirty') else ''}, {about.get('rustc')}",
            f"- machine: {machine.get('gpu') or 'no GPU: ' + str(machine.get('why'))}; {machine.get('cpu')}, {machine.get('cores')} cores, {machine.get('kernel')}",
            f"- driver: {machine.get('nvidia-smi') or 'nvidia-smi tells nothing'}",
            f"- nvJPEG: {machine.get('nvjpeg')}",
            f"- data: {self.records} files of {self.report.get('source')}, warm, at {self.data}",
            f"- command: `{self.report['command']}`; {self.report.get('seconds', 0):.0f} s",
        ]
        if self.is_mock:
            lines.append("- THE MOCK GPU OF THE TESTS: all figures are meaningless, only that they were measured counts")
        return lines

    def markdown(self):
        report = self.report
        lines = ["# infeed on a GPU", "", *self.head(), "", "## Checks", "", "| result | check | what |", "|---|---|---|"]
        order = {FAIL: 0, UNKNOWN: 1, PASS: 2}
        for check in sorted(report["checks"], key=lambda check: order[check["result"]]):
            lines.append(f"| {check['result']} | {check['name']} | {words(check['what'], 600).replace('|', '/')} |")
        lines += ["", "## Figures", "", "Median of several runs after one to warm up, and the lowest and highest."]
        section = None
        for figure in report["figures"]:
            if figure.get("section") != section:
                section = figure.get("section")
                lines += ["", f"### {section}", "", "| figure | median | lowest | highest | unit | runs |", "|---|---|---|---|---|---|"]
            name = figure["name"].replace("|", "/")
            if "median" in figure:
                numbers = " | ".join(f"{figure[key]:,.5g}" for key in ("median", "low", "high"))
                lines.append(f"| {name} | {numbers} | {figure['unit']} | {figure['runs']} |")
            else:
                what = json.dumps(figure.get("note", figure.get("error")))
                lines.append(f"| {name} | {words(what.replace('|', '/'), 500)} | | | {'error' if 'error' in figure else ''} | |")
        lines += ["", "## Parts", "", "| part | seconds | end |", "|---|---|---|"]
        lines += [f"| {part['name']} | {part['seconds']:.1f} | {part['end']} |" for part in report["parts"]]
        if report["notes"]:
            lines += ["", "## Notes", "", *[f"- {note}" for note in report["notes"]]]
        return "\n".join(lines)

    def short(self):
        """What fits a screen: the checks that matter, and the best figures."""
        checks = self.report["checks"]
        count = lambda result: sum(check["result"] == result for check in checks)
        lines = ["", "== report", *self.head(), f"- checks: {count(PASS)} pass, {count(FAIL)} FAIL, {count(UNKNOWN)} unknown", ""]
        lines += [f"{c['result']:7} {c['name']}: {words(c['what'], 260)}" for c in checks if c["result"] == FAIL][:25]
        lines += [f"{c['result']:7} {c['name']}: {words(c['what'], 120)}" for c in checks if c["result"] == UNKNOWN][:12]
        lines += [f"{c['result']:7} {c['name']}: {words(c['what'], 160)}" for c in checks
                  if c["result"] == PASS and c["name"].startswith("target")]
        lines += ["", f"{'part':14} seconds"] + [f"{p['name']:14} {p['seconds']:7.1f}  {p['end']}" for p in self.report["parts"]]
        lines += ["", f"all of it: {self.out}/report.md, report.json, log.txt"]
        return "\n".join(lines)


# ---- the parts ----------------------------------------------------------------------------------------------------


def unpack(kit):
    """Executables, libraries and their paths; what the machine is."""
    with open(os.path.join(HERE, "kit.json")) as file:
        kit.report["about"] = json.load(file)
    kit.binaries = os.path.join(kit.temp, "bin")
    with tarfile.open(os.path.join(HERE, "binaries.tar.xz")) as tar:
        extract(tar, kit.binaries)
    machine = kit.report["machine"]
    machine["kernel"] = platform.release()
    machine["cores"] = len(os.sched_getaffinity(0))
    try:
        with open("/proc/cpuinfo") as file:
            machine["cpu"] = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), None)
    except OSError:
        machine["cpu"] = platform.machine()
    machine["libc"] = " ".join(platform.libc_ver())
    # A driver that the loader does not find by itself.
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        folder = next((f for f in DRIVER_FOLDERS if os.path.exists(os.path.join(f, "libcuda.so.1"))), None)
        if folder:
            kit.env["LD_LIBRARY_PATH"] = ":".join(filter(None, [kit.env.get("LD_LIBRARY_PATH"), folder]))
            kit.note(f"libcuda.so.1 is not in the loader's path; {folder} was added")
    if not kit.env.get("INFEED_NVJPEG"):
        carried = os.path.join(HERE, "libnvjpeg.so.13")
        wheels = [path for folder in sys.path for path in glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libnvjpeg.so.1[123]"))]
        chosen = carried if os.path.exists(carried) else wheels[0] if wheels else None
        if chosen:
            kit.env["INFEED_NVJPEG"] = chosen
        else:
            kit.note("no libnvjpeg in the kit; infeed looks for the machine's own")
    query = "name,driver_version,memory.total,memory.used,pcie.link.gen.current,pcie.link.width.current,clocks.sm,clocks.mem,power.draw,compute_mode"
    code, out, _, _ = kit.process("nvidia-smi", ["nvidia-smi", f"--query-gpu={query}", "--format=csv"], 30)
    machine["nvidia-smi"] = words(out) if code == 0 else None


def extract(tar, folder):
    """Without the warning, or the refusals, of the Pythons that know filters."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, filter="data")
    else:
        tar.extractall(folder)


def devices(kit):
    """`infeed inspect --devices`."""
    code, out, both, _ = kit.process("devices", [kit.path("infeed"), "inspect", "--devices", "--json", "-"], 60)
    if code != 0:
        kit.check("infeed inspect --devices", FAIL, kit.ended(code, both))
        return
    # JSON to stdout, the table to stderr.
    try:
        found = json.loads(out)
    except ValueError:
        kit.check("infeed inspect --devices", FAIL, f"no JSON: {words(out)}")
        return
    found = found.get("devices") or found
    gpus = found.get("gpus") or []
    machine = kit.report["machine"]
    machine["devices"] = found
    machine["nvjpeg"] = json.dumps(found.get("nvjpeg") or found.get("nvjpeg_note"))
    machine["why"] = found.get("note")
    if gpus:
        kit.gpu = gpus[0]
        kit.is_mock = "mock" in gpus[0]["name"]
        machine["gpu"] = f"{gpus[0]['name']}, {gpus[0]['memory_bytes'] / 2**30:.1f} GiB"
        kit.check("infeed inspect --devices", PASS, machine["gpu"])
    else:
        kit.check("infeed inspect --devices", UNKNOWN, f"no GPU: {found.get('note')}; only what needs none is run")


def data(kit):
    """Photographs on a RAM disk, repeated until there are enough."""
    source = kit.args.data
    if source:
        kit.report["source"] = source
    elif os.path.exists(os.path.join(HERE, "photos.tar")):
        source = os.path.join(kit.temp, "photos")
        with tarfile.open(os.path.join(HERE, "photos.tar")) as tar:
            extract(tar, source)
        kit.report["source"] = "the kit's photographs"
    else:
        source = os.path.join(kit.temp, "photos")
        code, _, both, _ = kit.process("synth", [kit.path("infeed"), "synth", "imagenet", source, "--count", str(24 if small(kit) else 300), "--classes", "10"], 120)
        if code != 0:
            raise RuntimeError(f"photographs can't be made: {kit.ended(code, both)}")
        kit.report["source"] = "infeed synth imagenet"
    files = []
    for where, _, names in os.walk(source):
        files += [os.path.join(where, name) for name in names if name.lower().endswith((".jpg", ".jpeg"))]
    files.sort()
    if not files:
        raise RuntimeError(f"no JPEG below {source}")
    count = 48 if small(kit) else 4096 if kit.args.quick else 16384
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


def small(kit):
    """Whether sizes are to be tiny: nothing that is measured means anything."""
    return kit.is_mock or kit.gpu is None


def units(kit):
    """The unit tests."""
    code, out, both, _ = kit.process("units", [kit.path("unit-tests"), "--test-threads=8"], 120)
    results = [line for line in out.splitlines() if line.startswith("test result")]
    kit.check("unit tests", PASS if code == 0 else FAIL, results[0] if code == 0 and results else kit.ended(code, both))


def tests_of(kit):
    code, out, both, _ = kit.process("list", [kit.path("integration"), "on_gpu::", "--list"], 60)
    names = [line.rsplit(":", 1)[0] for line in out.splitlines() if line.endswith(": test")]
    if not names:
        raise RuntimeError(f"no tests: {kit.ended(code, both)}")
    return names


def on_gpu(kit):
    """The tests for a real GPU, each alone."""
    for name in tests_of(kit):
        command = [kit.path("integration"), name, "--exact", "--nocapture", "--test-threads=1"]
        code, _, both, seconds = kit.process(name, command, 120)
        said = []
        for line in both.splitlines():
            if line.startswith("figure "):
                try:
                    figure = json.loads(line[7:])
                except ValueError:
                    continue
                if figure["name"] != "gpu":
                    value = figure["value"]
                    shown = json.dumps(value)
                    said.append(f"{figure['name']}: {shown}")
                    kit.report["figures"].append({"part": "tests", "section": name, "name": figure["name"], "note": value})
            elif line.startswith("skipped: "):
                said.append(line)
        real = "figure {\"name\":\"gpu\"" in both
        where = f"{seconds:.1f} s" if real else f"{seconds:.1f} s, on the mock GPU"
        if code != 0:
            # The words of the panic; of the child's on the mock, which is told by the parent's.
            at = both.rfind("panicked at")
            panic = both[at : at + 1200].split("stack backtrace")[0] if at >= 0 else both[-600:]
            end = "ran past its limit" if code is None else f"died of signal {-code}" if code < 0 else "failed"
            kit.check(name, FAIL, f"{end} after {where}; {'; '.join(said)}; {words(panic, 1200)}")
        elif not real or any(line.startswith("skipped") for line in said):
            kit.check(name, PASS if kit.is_mock else UNKNOWN, f"{where}; {'; '.join(said)}")
        else:
            kit.check(name, PASS, f"{where}; {'; '.join(said)}")
        kit.write()


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
    batch = 8 if small(kit) else 256
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
        if adaptive := infeed_run(kit, "run on the GPU, adaptive split", kit.data, "--device", "cuda:0", "--epochs", 1 if small(kit) else 4, *plain):
            rates["GPU, adaptive split"] = adaptive
    for name, found in rates.items():
        rate = found["samples_per_second"]
        keys = ("device", "seconds", "au", "bottleneck", "cpu_seconds", "build_seconds", "first_batch_seconds", "peak_rss_bytes", "stages", "gpu", "bad_sample_count")
        kit.report["figures"].append({"part": "run", "section": "infeed run", "name": name, "unit": "images/s", "median": rate,
                                      "low": rate, "high": rate, "runs": 1, "more": {key: found.get(key) for key in keys}})


def machine(kit):
    kit.bench("machine", ["machine", "bounds"], 90)


def kernels(kit):
    kit.bench("kernels", ["kernels"], 120)


def decoders(kit):
    # Apart: a library that crashes in one must not cost the others.
    for section in ("engines", "hybrid", "cpu"):
        kit.bench(section, [section], 120)


def photos(kit):
    kit.bench("photos", ["photos"], 280)


def memory(kit):
    kit.bench("memory", ["memory"], 120)


def script(kit, name, limit, *more, cores=None):
    if small(kit) and not kit.is_mock:
        kit.check(name, UNKNOWN, "no GPU")
        return
    command = [sys.executable, os.path.join(HERE, f"{name}.py"), *more]
    code, out, both, _ = kit.process(name, command, limit, cores=cores)
    found = kit.lines(name, out)
    if code != 0:
        missing = "ModuleNotFoundError" in both or "ImportError" in both or kit.is_mock
        kit.check(name, UNKNOWN if missing else FAIL, kit.ended(code, both))
    elif not found:
        kit.check(name, UNKNOWN, words(both))


def train(kit):
    """A training loop on 4 cores at the pace of a real step."""
    cores = sorted(os.sched_getaffinity(0))[:4]
    script(kit, "step_torch", 90, "--batch", "256", "--steps", "15" if kit.args.quick else "40", cores=set(cores))
    step = kit.median("step", lambda name: True)
    if step is None:
        step = 80.0
        if kit.gpu and not kit.is_mock:
            kit.note("no step was measured with torch; 80 ms are taken for a step of 256 images")
    kit.bench("train", ["train"], 120, ["--step-ms", str(step)], cores=set(cores))


def torchvision(kit):
    script(kit, "peer_torchvision", 120, kit.data, *(["--quick", "--seconds", "1.5"] if kit.args.quick else []))


def dali(kit):
    script(kit, "peer_dali", 120, kit.data, *(["--quick", "--seconds", "1.5"] if kit.args.quick else []))


def targets(kit):
    """Figures against what the GPU path promises."""
    figures = kit.report["figures"]
    notes = lambda section, end: [(f["name"], f["note"]) for f in figures if f.get("section") == section and f["name"].endswith(end) and "note" in f]
    shares = [note["of_engines_and_cpu"] for name, note in notes("photos", ", shares") if name.startswith("auto adaptive")]
    kit.target("target: loader against bare engines + bare CPU pool", max(shares, default=None), lambda v: v >= 0.95,
               "at least 0.95, best number of workers, auto adaptive")
    ours = kit.median("photos", lambda name: name.startswith("auto adaptive") and not name.endswith(", cpu"))
    kit.target("target: photographs, images/s", ours, lambda v: v > 0, "500x375 JPEG to 224x224 f16 on the GPU")
    crop = lambda section: max((f["median"] for f in figures if f.get("section") == section and "median" in f and f.get("more", {}).get("crop")), default=None)
    for peer in ("torchvision", "dali"):
        best = crop(peer)
        ratio = ours / best if ours and best else None
        kit.target(f"target: loader against {peer}", ratio, lambda v: v >= 1, f"at least 1; {peer}'s best {best and round(best)} images/s")
    kit.target("target: loader against DALI's published figure", ours and ours / 21_567, lambda v: v >= 1, "21,567 images/s on Hopper with 70 threads; more cores than here")
    kit.target("target: CIFAR-10 on the device, records/s", kit.median("memory", lambda name: name.startswith("CIFAR")), lambda v: v >= 2e6, "at least 2,000,000")
    share = [note["of_fill_by_bytes_written"] for name, note in notes("kernels", ", shares") if name.startswith("50x50x5")]
    kit.target("target: 50x50x5 to 220x220 f32 kernel, of the bandwidth of a fill", max(share, default=None), lambda v: v >= 0.9, "at least 0.9 of writing its output")
    kit.target("target: 50x50x5 to 220x220 f32 from memory, records/s", kit.median("memory", lambda name: name.startswith("50x50x5")), lambda v: v > 0, "for comparison with the kernel's images/s")
    kit.target("target: AU on 4 cores", kit.median("train", lambda name: name == "AU"), lambda v: v >= 0.99, "at least 0.99")
    kit.target("target: the step is longer by %", kit.median("train", lambda name: name == "step is longer by"), lambda v: v <= 1, "at most 1 % than on resident data")


# Name, what it does, seconds it may need on a GPU in a quick run: it is left out when less is left. The most wanted first.
PARTS = [
    ("data", data, 10, False),
    ("machine", machine, 5, True),
    ("tests", on_gpu, 20, False),
    ("kernels", kernels, 10, True),
    ("photos", photos, 40, True),
    ("train", train, 40, True),
    ("torchvision", torchvision, 20, True),
    ("memory", memory, 20, True),
    ("run", command_line, 20, False),
    ("decoders", decoders, 20, True),
    ("dali", dali, 5, True),
    ("units", units, 10, False),
    ("sanitizer", sanitizer, 15, True),
]


def run_part(kit, name, part, needs, gpu_only):
    begin = time.monotonic()
    if kit.left() < needs:
        end = f"left out: {kit.left():.0f} s were left, it needs {needs}"
    elif gpu_only and kit.gpu is None:
        end = "left out: no GPU"
    else:
        print(f"\n== {name} ({kit.left():.0f} s left)", flush=True)
        end = "done"
        try:
            part(kit)
        except Ended as why:
            end = f"cut short: {why}"
        except Exception as error:  # whatever it is, the next part may work
            kit.log.write(traceback.format_exc())
            end = f"failed: {type(error).__name__}: {words(str(error))}"
    if end != "done":
        print(f"  {name}: {end}", flush=True)
        if end.startswith("failed"):
            kit.check(f"part {name}", FAIL, end)
        elif not end.endswith("no GPU"):
            kit.check(f"part {name}", UNKNOWN, end)
    kit.report["parts"].append({"name": name, "seconds": time.monotonic() - begin, "end": end})
    kit.write()


def main():
    names = [part[0] for part in PARTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="class folders of JPEGs")
    parser.add_argument("--out", required=True, help="folder for the report")
    parser.add_argument("--only", help=f"parts, with commas between: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="fewer settings and runs: under nine minutes")
    parser.add_argument("--minutes", type=float, help="time for all of it; default 9 with --quick, else 60")
    parser.add_argument("--keep", action="store_true", help="leave the unpacked files and data where they are")
    args = parser.parse_args()
    args.minutes = args.minutes or (9 if args.quick else 60)
    if args.data:
        args.data = os.path.abspath(args.data)
    wanted = args.only.split(",") if args.only else names
    unknown = [name for name in wanted if name not in names]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(names)}")
    kit = Kit(args)

    def stop(*_):
        if kit.current:
            os.killpg(kit.current.pid, signal.SIGKILL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        unpack(kit)
        run_part(kit, "devices", devices, 5, False)
        for name, part, needs, gpu_only in PARTS:
            # Others work on the photographs.
            if name in wanted or name == "data":
                run_part(kit, name, part, needs, gpu_only)
        if kit.gpu:
            print("\n== targets", flush=True)
            targets(kit)
    except KeyboardInterrupt:
        kit.note("stopped from outside")
    finally:
        kit.write()
        print(kit.short(), flush=True)
        kit.log.close()
        if not args.keep:
            shutil.rmtree(kit.temp, ignore_errors=True)
            if kit.data:
                shutil.rmtree(kit.data, ignore_errors=True)
    return 1 if any(check["result"] == FAIL for check in kit.report["checks"]) else 0


if __name__ == "__main__":
    sys.exit(main())
