#!/usr/bin/env python3
"""The parts of build.sh that are more than a shell command: finds what cargo built, checks it, packs it.

    pack.py nvjpeg WHEELS FILE             packs the libnvjpeg.so.13 of each wheel, by its version
    pack.py peers WHEELS FILE              packs what the peers' scripts need of the wheels
    pack.py kit MESSAGES FOLDER [...]      packs executables, the Python package and photographs, writes kit.json
    pack.py path MESSAGES NAME             where an executable is
    pack.py dry MESSAGES FOLDER MOCK       a kit that is not packed, and whose nvJPEG is the mock's: see dry.sh
"""

import argparse
import contextlib
import glob
import io
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
import zipfile

# The oldest C library that the kit should run on: that of Ubuntu 22.04 and RHEL 9.
NEWEST_GLIBC = (2, 34)
# MiB of the kit, and of kit and repository together: what a machine takes that is handed both.
KIT_LIMIT, WHOLE_LIMIT = 50, 62
# What is taken of a peer's wheel: decoding JPEGs, for one version of Python. The rest is for video, other formats and others.
PEERS = {
    "nvimgcodec": r"nvidia/__init__\.py|nvidia/nvimgcodec/(__init__\.py|libnvimgcodec\.so.*|nvimgcodec_impl\.cpython-{python}-.*"
                  r"|extensions/lib(nvjpeg|jpeg_turbo)_ext\.so.*)|.*\.dist-info/.*",
}
# Of machine code, and of several programs that share most of theirs: each is found again in the one before.
FILTERS = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 128 << 20}]
# The Python package, beside the executables; an extension module is named for the interface that it keeps to.
PACKAGE, MODULE = "python/infeed", "python/infeed/_native.abi3.so"


def nvjpeg(wheels, to):
    versions = []
    with packed(to) as tar:
        for wheel in sorted(glob.glob(os.path.join(wheels, "nvidia_nvjpeg-*.whl"))):
            version = os.path.basename(wheel).split("-")[1]
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if name.endswith("/libnvjpeg.so.13"):
                        add(tar, f"{version}/libnvjpeg.so.13", archive.read(name))
                        versions.append(version)
    if not versions:
        sys.exit(f"no libnvjpeg.so.13 in the wheels of {wheels}")
    print(f"{os.path.basename(to):24} {os.path.getsize(to) / 1e6:6.1f} MB: nvJPEG {', '.join(versions)}")


def peers(wheels, to, python):
    taken = []
    with packed(to) as tar:
        for wheel in sorted(glob.glob(os.path.join(wheels, "*.whl"))):
            name = next((name for name in PEERS if name in os.path.basename(wheel)), None)
            if not name:
                continue
            wanted = re.compile(PEERS[name].format(python=python.replace(".", "")))
            with zipfile.ZipFile(wheel) as archive:
                members = [member for member in archive.namelist() if wanted.fullmatch(member) and not member.endswith("/")]
                for member in members:
                    add(tar, f"{name}/{member}", archive.read(member))
            if not any(".so" in member for member in members):
                sys.exit(f"{os.path.basename(wheel)} has nothing for Python {python}")
            taken.append("-".join(os.path.basename(wheel).split("-")[:2]))
    if not taken:
        sys.exit(f"no wheel of {', '.join(PEERS)} in {wheels}")
    print(f"{os.path.basename(to):24} {os.path.getsize(to) / 1e6:6.1f} MB: {', '.join(taken)} for Python {python}")


@contextlib.contextmanager
def packed(to):
    """A tar file in the form of FILTERS."""
    with lzma.open(to, "wb", filters=FILTERS) as file, tarfile.open(fileobj=file, mode="w|") as tar:
        yield tar


def add(tar, name, data):
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o755
    tar.addfile(member, io.BytesIO(data))


def executables(messages):
    """Name in the kit and path of everything that cargo built to be run, and of Python's module."""
    found = {}
    with open(messages) as lines:
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if message.get("reason") != "compiler-artifact":
                continue
            target, path = message["target"], message.get("executable")
            kind, name = target["kind"][0], target["name"]
            if kind == "cdylib" and name == "_native":
                found[MODULE] = next(path for path in message["filenames"] if path.endswith(".so"))
            elif path and kind == "test":
                found[name] = path
            elif path and kind == "bench":
                found["bench-" + name] = path
            elif path and kind == "bin" and not message["profile"]["test"]:
                found[name] = path
    return found


def package(found):
    """The Python package's own files beside its module, if that was built."""
    if MODULE in found:
        for path in glob.glob(f"{PACKAGE}/*.py"):
            found[path] = os.path.abspath(path)
    return found


def glibc(path):
    """The newest version of the C library that a program asks for, as its dynamic symbols name it."""
    with open(path, "rb") as file:
        versions = re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)", file.read())
    return max(((int(a), int(b)) for a, b in versions), default=(0, 0))


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def photographs(folder, count, room):
    """JPEGs below a folder, evenly spread, at most so many and so many bytes of a tar file."""
    files = []
    for where, _, names in sorted(os.walk(folder)):
        files += [os.path.join(where, name) for name in sorted(names) if name.lower().endswith((".jpg", ".jpeg"))]
    keep = min(count, len(files))
    files = [files[n * len(files) // keep] for n in range(keep)]
    # A member of a tar file takes a header and whole blocks.
    while files and sum(512 + (os.path.getsize(path) + 511) // 512 * 512 for path in files) > room:
        files.pop()
    return files


def size_of(folder):
    return sum(os.path.getsize(os.path.join(where, name)) for where, _, names in os.walk(folder) for name in names)


def size_of_checkout():
    """Of the files that git has, or would take: what is carried with the kit."""
    names = output("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return sum(os.path.getsize(name) for name in set((names or "").split("\0")) if os.path.isfile(name))


def complete(messages):
    found = executables(messages)
    for name in ("infeed", "integration", "bench-gpu"):
        if name not in found:
            sys.exit(f"cargo built no {name}")
    return package(found)


def describe(found):
    """What kit.json tells of any kit."""
    return {
        "commit": output("git", "rev-parse", "HEAD"),
        "dirty": bool(output("git", "status", "--porcelain")),
        "rustc": output("rustc", "--version"),
        "glibc": ".".join(map(str, max(glibc(path) for path in found.values()))),
    }


def write(folder, about):
    with open(os.path.join(folder, "kit.json"), "w") as file:
        json.dump(about, file, indent=1)


def dry(messages, folder, mock):
    found = complete(messages)
    # Two names, as the kit has two versions.
    library = os.path.join(mock, "libnvjpeg.so.13")
    os.makedirs(folder, exist_ok=True)
    write(folder, {**describe(found), "paths": found, "nvjpegs": {"13.0.0": library, "13.0.1": library}})


def kit(messages, folder, photos, count):
    found = complete(messages)
    if MODULE not in found:
        sys.exit("cargo built no module for Python")
    too_new = []
    for name, path in sorted(found.items()):
        version = glibc(path)
        if not name.endswith(".py"):
            print(f"{name:32} {os.path.getsize(path) / 1e6:6.1f} MB  glibc {version[0]}.{version[1]}")
        if version > NEWEST_GLIBC:
            too_new.append(name)
    if too_new:
        print(f"NOTE: {', '.join(too_new)} need a C library newer than {'.'.join(map(str, NEWEST_GLIBC))}")
    archive = os.path.join(folder, "binaries.tar.xz")
    with packed(archive) as tar:
        for name, path in sorted(found.items()):
            tar.add(os.path.realpath(path), arcname=name)
    print(f"binaries.tar.xz          {os.path.getsize(archive) / 1e6:6.1f} MB")

    taken = []
    if photos:
        taken = photographs(photos, count, (KIT_LIMIT << 20) - size_of(folder) - (64 << 10))
        with tarfile.open(os.path.join(folder, "photos.tar"), "w", format=tarfile.USTAR_FORMAT) as tar:
            for path in taken:
                tar.add(path, arcname=os.path.relpath(path, photos))
        print(f"photos.tar               {os.path.getsize(os.path.join(folder, 'photos.tar')) / 1e6:6.1f} MB, {len(taken)} files")
    about = {**describe(found), "photos": len(taken)}
    write(folder, about)
    mib = lambda size: size / (1 << 20)
    total, checkout = size_of(folder), size_of_checkout()
    print(f"{folder}: {mib(total):.1f} MiB, {mib(total + checkout):.1f} with the repository; needs glibc {about['glibc']}; "
          f"commit {about['commit']}{' (dirty)' if about['dirty'] else ''}")
    if mib(total) > KIT_LIMIT or mib(total + checkout) > WHOLE_LIMIT:
        sys.exit(f"that is more than {KIT_LIMIT} MiB, or {WHOLE_LIMIT} with the repository: take fewer photographs with --count")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("nvjpeg", "peers"):
        command = commands.add_parser(name)
        command.add_argument("wheels")
        command.add_argument("file")
        if name == "peers":
            command.add_argument("--python", default="3.12")
    for name, more in {"path": "name", "dry": "folder", "kit": "folder"}.items():
        command = commands.add_parser(name)
        command.add_argument("messages")
        command.add_argument(more)
        if name == "dry":
            command.add_argument("mock")
        if name == "kit":
            command.add_argument("--photos")
            command.add_argument("--count", type=int, default=100)
    args = parser.parse_args()
    if args.command == "nvjpeg":
        nvjpeg(args.wheels, args.file)
    elif args.command == "peers":
        peers(args.wheels, args.file, args.python)
    elif args.command == "path":
        print(complete(args.messages)[args.name])
    elif args.command == "dry":
        dry(args.messages, args.folder, args.mock)
    else:
        kit(args.messages, args.folder, args.photos, args.count)


if __name__ == "__main__":
    main()
