"""Runs processes with limits, takes what they print, and keeps the report. The parts of run.py are made of it."""

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

import report

HERE = os.path.dirname(os.path.abspath(__file__))
# Where the driver's libraries are on machines whose loader is not told.
DRIVER_FOLDERS = ["/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
                  "/usr/lib/wsl/lib", "/usr/local/cuda/compat"]
# Output of a process that is kept, from its end.
KEPT = 60_000
# Seconds for a process that was killed to be gone. One that waits in the driver may never be: then the next part goes on beside it.
LAST_WORDS = 5
PASS, FAIL, UNKNOWN = report.PASS, report.FAIL, report.UNKNOWN
words = report.words


class Ended(Exception):
    """The time is up, or somebody wants us to end."""


class Kit:
    def __init__(self, args):
        self.args = args
        self.begin = time.monotonic()
        self.end = self.begin + args.seconds
        # When the part that runs must be over.
        self.part_end = self.end
        self.out = os.path.abspath(args.out)
        os.makedirs(self.out, exist_ok=True)
        self.log = open(os.path.join(self.out, "log.txt"), "w")
        self.temp = tempfile.mkdtemp(prefix="infeed-kit-")
        self.report = {"about": {}, "machine": {}, "command": " ".join(sys.argv), "day": args.day, "parts": [],
                       "checks": [], "figures": [], "notes": []}
        # Addresses of stripped programs say nothing.
        self.env = {**os.environ, "RUST_BACKTRACE": "0"}
        # Kernels are compiled once for all processes, and nothing stays behind.
        self.env.setdefault("CUDA_CACHE_PATH", os.path.join(self.temp, "kernels"))
        self.data = None
        self.records = 0
        self.gpu = None
        self.is_mock = False
        self.current = None
        # Versions of nvJPEG that can be used, the oldest first, and the one that is.
        self.nvjpegs = {}
        self.nvjpeg = None
        self.sections = []

    # ---- processes ------------------------------------------------------------------------------------------------

    def left(self):
        """Seconds for all that is still to be done."""
        return self.end - time.monotonic()

    def process(self, name, command, limit, env=None, cores=None):
        """Return code (None: it ran past its limit), standard output, both outputs together, seconds."""
        limit = min(limit, self.part_end - time.monotonic())
        if limit < 1:
            raise Ended("its time is up")
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
                stays = child.poll() is None and not end_of(child)
                self.current = None
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        seconds = time.monotonic() - begin
        # A test that ends its process leaves half a line.
        both = "\n".join(text.rstrip("\n") for text in texts if text)
        end = f"killed at its limit of {limit:.0f} s" if code is None else f"returned {code}"
        self.log.write(f"\n==== {name}: {' '.join(map(str, command))}\n{both[-KEPT:]}\n---- {end} after {seconds:.1f} s\n")
        self.log.flush()
        if stays:
            self.check(name, FAIL, "its process is killed and not gone: it hangs in the driver, and figures from here on are beside it")
        return code, texts[0], both, seconds

    def ended(self, code, both):
        """How a process ended, in words."""
        if code is None:
            return f"ran past its limit; {words(both[-600:])}"
        if code < 0:
            return f"died of signal {-code}; {words(both[-600:])}"
        return f"returned {code}; {words(both[-600:])}"

    def path(self, name):
        return os.path.join(self.temp, "bin", name)

    # ---- what is found --------------------------------------------------------------------------------------------

    def check(self, name, result, what=""):
        self.report["checks"].append({"name": name, "result": result, "what": what})
        print(f"  {result:7} {name}{': ' + words(what, 200) if what else ''}", flush=True)

    def note(self, text):
        self.report["notes"].append(text)
        print(f"  note: {text}", flush=True)

    def figure(self, part, section, name, **fields):
        self.report["figures"].append({"part": part, "section": section, "name": name, **fields})

    def lines(self, part, text, section=None, failed=FAIL):
        """Takes the lines of JSON that a bench or a peer printed. `section`: another name for theirs; `failed`: what it
        means that something was not measured."""
        found = 0
        for line in text.splitlines():
            if not line.startswith("{"):
                continue
            try:
                figure = json.loads(line)
            except ValueError:
                continue
            if "result" in figure:
                self.check(f"{part}: {figure['name']}", figure["result"], json.dumps(figure.get("note")))
            if "name" in figure and figure["name"] != "seconds":
                figure["part"] = part
                figure["section"] = section or figure.get("section", part)
                if self.nvjpeg:
                    figure["nvjpeg"] = self.nvjpeg
                self.report["figures"].append(figure)
                found += 1
                if "error" in figure:
                    self.check(f"{part}: {figure['section']} {figure['name']}", failed, figure["error"])
                elif "median" in figure:
                    print(f"  {figure['name']}: {figure['median']:,.5g} {figure['unit']}", flush=True)
        return found

    def bench(self, part, sections, limit, more=(), cores=None, env=None, section=None):
        if unknown := [name for name in sections if name not in self.sections]:
            # The bench would run all of them.
            raise ValueError(f"bench-gpu has no section {', '.join(unknown)}")
        command = [self.path("bench-gpu"), *sections, *more]
        if not self.args.full:
            command.append("--quick")
        if self.data:
            command += ["--photos", self.data]
        code, out, both, _ = self.process(part, command, limit, env=env, cores=cores)
        found = self.lines(part, out, section)
        if code != 0:
            self.check(f"{part}: bench-gpu {' '.join(sections)}", FAIL, self.ended(code, both))
        elif not found:
            self.check(f"{part}: bench-gpu {' '.join(sections)}", UNKNOWN, words(both))

    def script(self, command, limit, part, folder=None, env=None, ours=False):
        """A Python script of the kit; `folder`: where packages are that it needs, if it is there."""
        code, out, both, _ = self.process(part, command, limit, env={**(env or {}), **self.package_env(folder)})
        # What others can't do, or what is not installed, is no fault of infeed's. In CI all of it is there.
        failed = FAIL if self.args.strict or ours and "No module named" not in both else UNKNOWN
        found = self.lines(part, out, failed=failed)
        if code != 0:
            self.check(part, failed, self.ended(code, both))
        elif not found:
            self.check(part, UNKNOWN, words(both))

    def package_env(self, folder=None):
        """Where Python finds the packages of a folder, or infeed's."""
        folder = folder or os.path.join(self.temp, "bin", "python")
        return {"PYTHONPATH": os.pathsep.join(filter(None, [folder, self.env.get("PYTHONPATH")]))} if os.path.isdir(folder) else {}

    def peer(self, name, limit, *more):
        """The script of another library's, which may be among the kit's peers."""
        command = [sys.executable, os.path.join(HERE, f"peer_{name}.py"), *map(str, more)]
        self.script(command, limit, f"peer_{name}", os.path.join(self.temp, "peers", name))

    def wheel_command(self, what, *more):
        """A subcommand of wheel.py on the photographs."""
        small = ["--small"] if self.small() else []
        return [sys.executable, os.path.join(HERE, "wheel.py"), what, self.data, *map(str, more), *small, "--records", str(self.records)]

    def wheel(self, what, limit, *more, part=None, env=None):
        self.script(self.wheel_command(what, *more), limit, part or what, env=env, ours=True)

    def workers(self):
        """As many threads as there are cores."""
        return 2 if self.small() else self.report["machine"]["cores"]

    def small(self):
        """Whether sizes are to be tiny: nothing that is measured means anything."""
        return self.is_mock or self.gpu is None

    # ---- the kit's files ------------------------------------------------------------------------------------------

    def unpack(self):
        """Executables, libraries and their paths; what the machine is."""
        with open(os.path.join(HERE, "kit.json")) as file:
            about = json.load(file)
        self.report["about"] = about
        binaries = os.path.join(self.temp, "bin")
        if "paths" in about:
            # A kit that was never packed: see dry.sh.
            for name, path in about["paths"].items():
                os.makedirs(os.path.dirname(os.path.join(binaries, name)), exist_ok=True)
                os.symlink(path, os.path.join(binaries, name))
        else:
            unpack(os.path.join(HERE, "binaries.tar.xz"), binaries)
        self.describe_machine()
        self.find_driver()
        self.find_nvjpeg()
        code, out, both, _ = self.process("sections", [self.path("bench-gpu"), "--list"], 30)
        self.sections = out.split()
        if code != 0:
            self.check("bench-gpu --list", FAIL, self.ended(code, both))

    def describe_machine(self):
        machine = self.report["machine"]
        machine["kernel"] = platform.release()
        machine["cores"] = len(os.sched_getaffinity(0))
        machine["cpu"] = platform.machine()
        try:
            with open("/proc/cpuinfo") as file:
                machine["cpu"] = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), machine["cpu"])
        except OSError:
            pass
        machine["libc"] = " ".join(platform.libc_ver())
        machine["python"] = platform.python_version()
        query = "name,driver_version,memory.total,memory.used,pcie.link.gen.current,pcie.link.width.current,clocks.sm,clocks.mem,power.draw,compute_mode"
        code, out, _, _ = self.process("nvidia-smi", ["nvidia-smi", f"--query-gpu={query}", "--format=csv"], 30)
        machine["nvidia-smi"] = words(out) if code == 0 else None

    def find_driver(self):
        """The driver's library, and the one that nvJPEG's engines open by name; folders that the loader is not told of."""
        machine = self.report["machine"]
        for library in ("libcuda.so.1", "libnvcuvid.so.1"):
            try:
                ctypes.CDLL(library)
                found, why = library, None
            except OSError as error:
                found, why = None, str(error)
                folder = next((f for f in DRIVER_FOLDERS if os.path.exists(os.path.join(f, library))), None)
                known = self.env.get("LD_LIBRARY_PATH", "").split(":")
                if folder:
                    found = os.path.join(folder, library)
                    if folder not in known:
                        self.env["LD_LIBRARY_PATH"] = ":".join(filter(None, [*known, folder]))
                        self.note(f"{library} is not in the loader's path; {folder} was added for what is run")
            machine[library] = found
            if not found:
                machine[f"{library}_why"] = why

    def find_nvjpeg(self):
        """The versions of nvJPEG that there are, and which one is used: the oldest, which PyTorch has too, or the one that was named."""
        packed = os.path.join(HERE, "nvjpeg.tar.xz")
        self.nvjpegs = dict(self.report["about"].get("nvjpegs", {}))
        if os.path.exists(packed):
            folder = os.path.join(self.temp, "nvjpeg")
            unpack(packed, folder)
            for path in glob.glob(os.path.join(folder, "*", "libnvjpeg.so.*")):
                self.nvjpegs[os.path.basename(os.path.dirname(path))] = path
        oldest_first = sorted(self.nvjpegs, key=lambda version: [int(n) for n in version.split(".")])
        self.nvjpegs = {version: self.nvjpegs[version] for version in oldest_first}
        named = self.args.nvjpeg or self.env.get("INFEED_NVJPEG")
        if named and named not in self.nvjpegs:
            if not os.path.exists(named):
                raise ValueError(f"nvJPEG {named}: no such file, and the kit has {', '.join(self.nvjpegs) or 'none'}")
            self.nvjpegs[named] = os.path.abspath(named)
        if named or self.nvjpegs:
            self.use_nvjpeg(named or next(iter(self.nvjpegs)))
        else:
            self.note("no libnvjpeg in the kit; infeed looks for the machine's own")

    def use_nvjpeg(self, version):
        self.nvjpeg = version
        self.env["INFEED_NVJPEG"] = self.nvjpegs[version]
        self.report["machine"]["nvjpeg used"] = version
        # nvImageCodec looks for it beside itself.
        beside = os.path.join(self.temp, "peers", "nvimgcodec", "nvidia", "cu13", "lib", "libnvjpeg.so.13")
        if os.path.isdir(os.path.join(self.temp, "peers", "nvimgcodec")):
            os.makedirs(os.path.dirname(beside), exist_ok=True)
            if os.path.lexists(beside):
                os.remove(beside)
            os.symlink(self.nvjpegs[version], beside)

    def unpack_peers(self):
        packed, folder = os.path.join(HERE, "peers.tar.xz"), os.path.join(self.temp, "peers")
        # On the mock they are fakes.
        if os.path.exists(packed) and not os.path.isdir(folder) and not self.is_mock:
            unpack(packed, folder)
            if self.nvjpeg:
                self.use_nvjpeg(self.nvjpeg)

    # ---- the report -----------------------------------------------------------------------------------------------

    def write(self):
        self.report["seconds"] = time.monotonic() - self.begin
        self.report["data"] = self.data
        self.report["records"] = self.records
        self.report["is_mock"] = self.is_mock
        # What was measured is kept whatever becomes of the text.
        for name, make in (("report.json", lambda: json.dumps(self.report, indent=1)), ("report.md", lambda: report.markdown(self.report))):
            path = os.path.join(self.out, name)
            try:
                text = make()
            except Exception as error:
                text = traceback.format_exc()
                if not any(check["name"] == name for check in self.report["checks"]):
                    self.check(name, FAIL, f"can't be written: {type(error).__name__}: {error}")
            with open(path + ".new", "w") as file:
                file.write(text + "\n")
            os.replace(path + ".new", path)

    def close(self):
        self.log.close()
        if not self.args.keep:
            shutil.rmtree(self.temp, ignore_errors=True)
            if self.data:
                shutil.rmtree(self.data, ignore_errors=True)


def end_of(child):
    """Kills a process and all that it started; whether it is gone."""
    os.killpg(child.pid, signal.SIGKILL)
    try:
        child.wait(LAST_WORDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def unpack(packed, folder):
    """Without the warning, or the refusals, of the Pythons that know filters."""
    with tarfile.open(packed) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, filter="data")
        else:
            tar.extractall(folder)
