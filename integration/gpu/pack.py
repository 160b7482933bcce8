#!/usr/bin/env python3
"""The parts of build.sh that are more than a shell command: finds what cargo built, checks it, packs it.

    pack.py examples                       cargo's options for the examples that are taken along
    pack.py nvjpeg WHEELS FILE             packs the libnvjpeg.so.13 of each wheel, by its version
    pack.py peers WHEELS FILE              packs what the peers' scripts need of the wheels
    pack.py kit MESSAGES FOLDER [...]      packs executables and photographs, writes kit.json
    pack.py path MESSAGES NAME             where an executable is
    pack.py dry MESSAGES FOLDER MOCK       a kit that is not packed, and whose nvJPEG is the mock's: see dry.sh
"""

import argparse
import glob
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

# The oldest C library that the kit should run on: that of Ubuntu 22.04 and RHEL 9.
NEWEST_GLIBC = (2, 34)
# Examples that use a GPU when there is one; the others say nothing about it.
EXAMPLES = re.compile(r"quickstart|.*gpu.*|.*burn.*")
# What is taken of a peer's wheel: decoding JPEGs, for one version of Python. The rest is for video, other formats and others.
PEERS = {
    "nvimgcodec": r"nvidia/__init__\.py|nvidia/nvimgcodec/(__init__\.py|libnvimgcodec\.so.*|nvimgcodec_impl\.cpython-{python}-.*"
                  r"|extensions/lib(nvjpeg|jpeg_turbo)_ext\.so.*)|.*\.dist-info/.*",
    "torchcodec": r"torchcodec/(.*\.py|libtorchcodec_(image|pybind_ops)\.so)|torchcodec\.libs/.*|.*\.dist-info/.*",
}


def examples():
    metadata = subprocess.run(["cargo", "metadata", "--no-deps", "--format-version=1"], capture_output=True, text=True, check=True)
    targets = [target for package in json.loads(metadata.stdout)["packages"] for target in package["targets"]]
    for target in targets:
        if target["kind"] == ["example"] and EXAMPLES.fullmatch(target["name"]):
            print(f"--example {target['name']}")


def nvjpeg(wheels, to):
    versions = []
    with tarfile.open(to, "w:xz", preset=9) as tar:
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
    with tarfile.open(to, "w:xz", preset=9) as tar:
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


def add(tar, name, data):
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o755
    tar.addfile(member, io.BytesIO(data))


def executables(messages):
    """Name in the kit and path of everything that cargo built to be run."""
    found = {}
    with open(messages) as lines:
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            path = message.get("executable")
            if message.get("reason") != "compiler-artifact" or not path:
                continue
            target, harness = message["target"], message["profile"]["test"]
            kind, name = target["kind"][0], target["name"]
            if kind == "lib" and name == "infeed":
                found["unit-tests"] = path
            elif kind == "test":
                found[name] = path
            elif kind == "bench":
                found["bench-" + name] = path
            elif kind == "bin" and not harness:
                found[name] = path
            elif kind == "example" and EXAMPLES.fullmatch(name):
                found["example-" + name] = path
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


def known_checksum(infeed):
    """Of a small dataset that `synth` makes, as the CPU loads it here: it must be the same there."""
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "cifar")
        synth = ["synth", "cifar10", data, "--count", "500"]
        run = ["run", data, "--device", "cpu", "--shuffle", "3", "--batch-size", "50", "--checksum", "--json", "-"]
        subprocess.run([infeed, *synth], check=True, capture_output=True)
        report = subprocess.run([infeed, *run], check=True, capture_output=True, text=True).stdout
        return {"synth": synth[1:2] + synth[3:], "run": run[2:-2], "checksum": json.loads(report)["checksum"]}


def photographs(folder, room):
    """JPEGs below a folder, evenly spread, as many as there is room for."""
    files = []
    for where, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            if name.lower().endswith((".jpg", ".jpeg")):
                path = os.path.join(where, name)
                # A member of a tar file takes a header and whole blocks.
                files.append((path, 512 + (os.path.getsize(path) + 511) // 512 * 512))
    total = sum(size for _, size in files)
    if total > room:
        keep = int(len(files) * room / total)
        files = [files[n * len(files) // keep] for n in range(keep)] if keep > 0 else []
        while files and sum(size for _, size in files) > room:
            files.pop()
    return [path for path, _ in files]


def size_of(folder):
    return sum(os.path.getsize(os.path.join(where, name)) for where, _, names in os.walk(folder) for name in names)


def complete(messages):
    found = executables(messages)
    for name in ("infeed", "integration", "unit-tests", "bench-gpu"):
        if name not in found:
            sys.exit(f"cargo built no {name}")
    return found


def describe(found):
    """What kit.json tells of any kit."""
    return {
        "commit": output("git", "rev-parse", "HEAD"),
        "dirty": bool(output("git", "status", "--porcelain")),
        "rustc": output("rustc", "--version"),
        "files": sorted(found),
        "glibc": ".".join(map(str, max(glibc(path) for path in found.values()))),
        "known": known_checksum(found["infeed"]),
    }


def dry(messages, folder, mock):
    found = complete(messages)
    # Two names, so that a version has to be chosen.
    library = os.path.join(mock, "libnvjpeg.so.13")
    about = {**describe(found), "paths": found, "nvjpegs": {"13.0.0": library, "13.0.1": library}}
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "kit.json"), "w") as file:
        json.dump(about, file, indent=1)


def kit(messages, folder, photos, limit):
    found = complete(messages)
    too_new = []
    for name, path in sorted(found.items()):
        version = glibc(path)
        print(f"{name:24} {os.path.getsize(path) / 1e6:6.1f} MB  glibc {version[0]}.{version[1]}")
        if version > NEWEST_GLIBC:
            too_new.append(name)
    if too_new:
        print(f"NOTE: {', '.join(too_new)} need a C library newer than {'.'.join(map(str, NEWEST_GLIBC))}")
    archive = os.path.join(folder, "binaries.tar.xz")
    with tarfile.open(archive, "w:xz", preset=6) as tar:
        for name, path in sorted(found.items()):
            tar.add(path, arcname=name)
    print(f"binaries.tar.xz          {os.path.getsize(archive) / 1e6:6.1f} MB")

    taken = []
    if photos:
        taken = photographs(photos, (limit << 20) - size_of(folder) - (64 << 10))
        with tarfile.open(os.path.join(folder, "photos.tar"), "w", format=tarfile.USTAR_FORMAT) as tar:
            for path in taken:
                tar.add(path, arcname=os.path.relpath(path, photos))
        print(f"photos.tar               {os.path.getsize(os.path.join(folder, 'photos.tar')) / 1e6:6.1f} MB, {len(taken)} files")
    about = {**describe(found), "photos": len(taken)}
    with open(os.path.join(folder, "kit.json"), "w") as file:
        json.dump(about, file, indent=1)
    total = size_of(folder)
    print(f"{folder}: {total / (1 << 20):.1f} MiB, needs glibc {about['glibc']}; commit {about['commit']}{' (dirty)' if about['dirty'] else ''}")
    if total > limit << 20:
        sys.exit(f"that is more than {limit} MiB: take fewer photographs, or give another --limit-mib")
    print(f"next, on the machine with the GPU: python3 {os.path.basename(folder)}/run.py --day first --out first")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("examples")
    for name in ("nvjpeg", "peers"):
        command = commands.add_parser(name)
        command.add_argument("wheels")
        command.add_argument("file")
        if name == "peers":
            command.add_argument("--python", default="3.12")
    command = commands.add_parser("path")
    command.add_argument("messages")
    command.add_argument("name")
    command = commands.add_parser("dry")
    command.add_argument("messages")
    command.add_argument("folder")
    command.add_argument("mock")
    command = commands.add_parser("kit")
    command.add_argument("messages")
    command.add_argument("folder")
    command.add_argument("--photos")
    command.add_argument("--limit-mib", type=int, default=56)
    args = parser.parse_args()
    if args.command == "examples":
        examples()
    elif args.command == "nvjpeg":
        nvjpeg(args.wheels, args.file)
    elif args.command == "peers":
        peers(args.wheels, args.file, args.python)
    elif args.command == "path":
        print(complete(args.messages)[args.name])
    elif args.command == "dry":
        dry(args.messages, args.folder, args.mock)
    else:
        kit(args.messages, args.folder, args.photos, args.limit_mib)


if __name__ == "__main__":
    main()
