#!/usr/bin/env python3
"""Licences, sources and bans of everything in Cargo.lock, as deny.toml has them: what `cargo deny` asks, where it is not installed.
Beyond that, whether what users build asks for a newer Rust than ours.

Knows the licence expressions that crates use: names joined by AND, OR, `/`, WITH and parentheses.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def allows(expression, allowed):
    """Whether a licence expression can be met with these licences."""
    words = re.findall(r"[()]|[^\s()/]+|/", expression)
    at = 0

    def one():
        nonlocal at
        word = words[at]
        at += 1
        if word == "(":
            met = either()
            at += 1
            return met
        if at < len(words) and words[at] == "WITH":
            word = f"{word} WITH {words[at + 1]}"
            at += 2
        return word in allowed

    def both():
        nonlocal at
        met = one()
        while at < len(words) and words[at] == "AND":
            at += 1
            met = one() and met
        return met

    def either():
        nonlocal at
        met = both()
        while at < len(words) and words[at] in ("OR", "/"):
            at += 1
            met = both() or met
        return met

    return either()


def too_new(metadata):
    """What our packages are built of that says it needs a newer Rust than they do."""
    packages = {package["id"]: package for package in metadata["packages"]}
    needs = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    published = [id for id in metadata["workspace_members"] if packages[id]["publish"] is None]
    ours = min(version(packages[id]["rust_version"]) for id in published)
    seen, todo = set(), published
    while todo:
        id = todo.pop()
        if id not in seen:
            seen.add(id)
            todo += [dep["pkg"] for dep in needs[id] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
    newer = [packages[id] for id in seen if version(packages[id]["rust_version"] or "0") > ours]
    return [f"{package['name']} {package['version']} needs Rust {package['rust_version']}" for package in newer]


def version(text):
    return tuple(int(part) for part in (text.split(".") + ["0", "0"])[:3])


def main():
    config = tomllib.loads((ROOT / "deny.toml").read_text())
    command = ["cargo", "metadata", "--locked", "--format-version=1", "--all-features"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    packages = metadata["packages"]
    banned = {entry["name"] for entry in config["bans"]["deny"]}
    allowed = set(config["licenses"]["allow"])
    wrong, versions = [], {}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        versions.setdefault(package["name"], set()).add(package["version"])
        if package["source"] not in (None, REGISTRY):
            wrong.append(f"{name} comes from {package['source']}")
        if package["name"] in banned:
            wrong.append(f"{name} is banned")
        if not allows(package["license"] or "none", allowed):
            wrong.append(f"{name} is under {package['license']}, which deny.toml does not allow")
    wrong += too_new(metadata)
    for what in wrong:
        print(what)
    twice = sorted(name for name, found in versions.items() if len(found) > 1)
    print(f"{len(packages)} packages, {len(wrong)} refused; in several versions: {', '.join(twice) or 'none'}")
    return 1 if wrong else 0


assert allows("(MIT OR Apache-2.0) AND Unicode-3.0", {"MIT", "Unicode-3.0"})
assert not allows("(MIT OR Apache-2.0) AND Unicode-3.0", {"MIT"})
assert allows("Apache-2.0 WITH LLVM-exception/MIT", {"MIT"})
assert not allows("GPL-3.0 AND MIT OR none", {"MIT"})
sys.exit(main())
