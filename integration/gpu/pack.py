#!/usr/bin/env python3
"""The parts of build.sh that are more than a shell command: finds what cargo built, checks it, packs it.

    pack.py examples                       cargo's options for the examples that are taken along
    pack.py library WHEELS FILE            takes libnvjpeg.so.13 out of a wheel
    pack.py kit MESSAGES FOLDER [...]      packs executables and photographs, writes kit.json
"""

import argparse
import glob
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


def examples():
    metadata = subprocess.run(["cargo", "metadata", "--no-deps", "--format-version=1"], capture_output=True, text=True, check=True)
    targets = [target for package in json.loads(metadata.stdout)["packages"] for target in package["targets"]]
    for target in targets:
        if target["kind"] == ["example"] and EXAMPLES.fullmatch(target["name"]):
            print(f"--example {target['name']}")


def library(wheels, to):
    for wheel in glob.glob(os.path.join(wheels, "*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith("/libnvjpeg.so.13"):
                    with open(to, "wb") as file:
                        file.write(archive.read(name))
                    os.chmod(to, 0o755)
                    return
    sys.exit("no libnvjpeg.so.13 in the wheel")


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


def kit(messages, folder, photos, limit):
    found = executables(messages)
    for name in ("infeed", "integration", "unit-tests", "bench-gpu"):
        if name not in found:
            sys.exit(f"cargo built no {name}")
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
    about = {
        "commit": output("git", "rev-parse", "HEAD"),
        "dirty": bool(output("git", "status", "--porcelain")),
        "rustc": output("rustc", "--version"),
        "files": sorted(found),
        "glibc": ".".join(map(str, max(glibc(path) for path in found.values()))),
        "photos": len(taken),
        "known": known_checksum(found["infeed"]),
    }
    with open(os.path.join(folder, "kit.json"), "w") as file:
        json.dump(about, file, indent=1)
    total = size_of(folder)
    print(f"{folder}: {total / (1 << 20):.1f} MiB, needs glibc {about['glibc']}; commit {about['commit']}{' (dirty)' if about['dirty'] else ''}")
    if total > limit << 20:
        sys.exit(f"that is more than {limit} MiB: take fewer photographs, or give another --limit-mib")
    print(f"next, on the machine with the GPU: python3 {os.path.basename(folder)}/run.py --out results")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("examples")
    one = commands.add_parser("library")
    one.add_argument("wheels")
    one.add_argument("file")
    other = commands.add_parser("kit")
    other.add_argument("messages")
    other.add_argument("folder")
    other.add_argument("--photos")
    other.add_argument("--limit-mib", type=int, default=62)
    args = parser.parse_args()
    if args.command == "examples":
        examples()
    elif args.command == "library":
        library(args.wheels, args.file)
    else:
        kit(args.messages, args.folder, args.photos, args.limit_mib)


if __name__ == "__main__":
    main()
