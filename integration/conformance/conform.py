#!/usr/bin/env python3
"""Kill-and-resume conformance of data loaders. See README.md.

    conform.py                                              all loaders that are installed, all checks
    conform.py --loaders infeed.Loader --checks kill-0      some
    conform.py --out results.json --table docs/conformance.md   what was found, kept and shown
    conform.py --loaders ours --out results.json --keep     those of infeed anew, the others as they were found before
    conform.py --render results.json --table docs/conformance.md    the table of figures of before
    conform.py --self-test                                  the harness finds the faults that are planted for it

Ends with 1 if a check of infeed's that it promises is not 0.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import multiprocessing
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import adapters  # noqa: E402
import planted  # noqa: E402
from checks import CHECKS, Outcome, check  # noqa: E402
from spec import Adapter  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- conformance: written by integration/conformance/conform.py -->", "<!-- /conformance -->"
# What a table is headed by.
TABLES = ("torch's DataLoader, and what takes its place", "Others")


def versions(adapter: type[Adapter]) -> dict[str, str] | None:
    """Of its packages; None where one isn't installed."""
    found = {}
    for package in adapter.packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            # A package that lies in a folder, as those of a build do, has no metadata.
            try:
                found[package] = str(__import__(package).__version__)
            except (ImportError, AttributeError):
                return None
    return found


def one(adapter: type[Adapter], names: Sequence[str], seed: int, fork: bool, kills: int, out: str) -> None:
    """A loader's checks, in a process of their own, which imports what they need."""
    begun = time.time()
    # Where worker processes were killed, something may still be written.
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as folder:
        # Nobody who is killed removes what it has put there.
        place = os.path.join(folder, "tmp")
        os.mkdir(place)
        os.environ["TMPDIR"] = tempfile.tempdir = place
        os.environ["HF_HOME"] = os.path.join(folder, "hub")
        found = check(adapter, names, folder, seed, fork, kills)
    if adapter.leaves:
        clean(adapter.leaves, begun)
    Path(out).write_text(json.dumps({name: asdict(outcome) for name, outcome in found.items()}))


def clean(names: Sequence[str], begun: float) -> None:
    """Removes shared memory that was made since, and that no process has any more."""
    used = set[str]()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            text = maps.read_text()
            used |= {line.split("/dev/shm/")[1].split()[0] for line in text.splitlines() if "/dev/shm/" in line}
        except OSError:
            # It has ended.
            continue
    for path in (path for name in names for path in Path("/dev/shm").glob(name)):
        try:
            if path.name not in used and path.stat().st_mtime >= begun:
                path.unlink()
        except FileNotFoundError:
            pass


def measure(
    loaders: Sequence[type[Adapter]], names: Sequence[str], seed: int, fork: bool, kills: int, jobs: int
) -> dict[str, dict[str, Outcome]]:
    """The outcomes of each loader, some loaders at a time."""
    found: dict[str, dict[str, Outcome]] = {}
    # This process has imported nothing and started no thread.
    processes = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        waiting, running = list(enumerate(loaders)), list[tuple[type[Adapter], Any, Path, float]]()
        while waiting or running:
            while waiting and len(running) < jobs:
                place, adapter = waiting.pop(0)
                out = Path(folder, str(place))
                process = processes.Process(target=one, args=(adapter, names, seed, fork, kills, str(out)))
                process.start()
                running.append((adapter, process, out, time.monotonic()))
            for each in list(running):
                adapter, process, out, begun = each
                process.join(0.02)
                if process.exitcode is None:
                    continue
                running.remove(each)
                if out.exists():
                    results = {name: Outcome(**outcome) for name, outcome in json.loads(out.read_text()).items()}
                else:
                    results = {name: Outcome(error="the harness: its process died") for name in names}
                found[adapter.name] = results
                say(adapter, results, time.monotonic() - begun)
    return {adapter.name: found[adapter.name] for adapter in loaders}


def say(adapter: type[Adapter], results: dict[str, Outcome], seconds: float) -> None:
    if adapter in planted.ADAPTERS:
        return
    print(f"{adapter.name} ({seconds:.0f} s)")
    for name, outcome in results.items():
        note = f"  ({outcome.note})" if outcome.note and not outcome.error else ""
        print(f"    {name:15} {words(outcome)}{note}")
    sys.stdout.flush()


def words(outcome: Outcome) -> str:
    if outcome.unsupported:
        return f"unsupported: {outcome.unsupported}"
    if outcome.error:
        return f"error: {outcome.error.splitlines()[0][:200]}"
    return cell(outcome)


def cell(outcome: Outcome) -> str:
    """What stands in the table: nothing that is 0, unless all is."""
    if "random" in outcome.wrong and len(set(outcome.wrong.values())) == 1 and outcome.wrong["random"]:
        return f"{outcome.wrong['random']} of each"
    counts = [f"{count} {kind}" for kind, count in outcome.wrong.items() if count]
    return ", ".join(counts) or "0"


# The page.


def table(results: dict[str, Any]) -> str:
    """Two tables and their notes, as Markdown."""
    found = {
        loader: {name: Outcome(**outcome) for name, outcome in each["checks"].items()}
        for loader, each in results["loaders"].items()
    }
    lines = [
        f"Measured on {results['date']}, infeed of commit {results['commit'][:7]}, {results['machine']}, "
        f"Python {results['python']}, seed {results['seed']}.",
        "",
        ", ".join(f"{name} {version}" for name, version in results["versions"].items()) + ".",
        "",
    ]
    if results["left_out"]:
        lines += [f"Not installed, and left out: {', '.join(results['left_out'])}.", ""]
    notes: dict[str, int] = {}

    def noted(text: str) -> str:
        return f"[^{notes.setdefault(' '.join(text.split()), len(notes) + 1)}]"

    for number, heading in enumerate(TABLES):
        columns = [each for each in adapters.ADAPTERS if each.table == number and each.name in found]
        if not columns:
            continue
        lines += [f"### {heading}", "", "| | " + " | ".join(each.name for each in columns) + " |"]
        lines.append("|---|" + "---|" * len(columns))
        for name, asked in CHECKS.items():
            cells = []
            for each in columns:
                outcome = found[each.name].get(name)
                if outcome is None:
                    cells.append("")
                elif outcome.unsupported:
                    cells.append("–" + noted(outcome.unsupported))
                elif outcome.error:
                    cells.append("error" + noted("`" + short(outcome.error) + "`"))
                else:
                    text = cell(outcome)
                    if outcome.note and not name.startswith("kill") and (text != "0" or name.startswith("uneven")):
                        text += noted(outcome.note)
                    if name in each.unpromised and not outcome.right:
                        text += " " + noted(each.unpromised[name])
                    cells.append(text)
            if any(cells):
                lines.append(f"| {asked} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += [f"[^{number}]: {text[0].upper()}{text[1:].rstrip('.')}.\n" for text, number in notes.items()]
    return "\n".join(lines).rstrip() + "\n"


def short(error: str) -> str:
    """The first words of an error, without what a table can't hold."""
    text = " ".join(error.replace("|", "/").replace("`", "'").split())
    return text if len(text) < 240 else text[:237] + "…"


def write(page: Path, results: dict[str, Any]) -> None:
    text = page.read_text()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{page} has no marks to write between: {BEGIN} … {END}")
    page.write_text(f"{head}{BEGIN}\n\n{table(results)}\n{END}{tail}")


# The command.


def self_test(seed: int, kills: int, jobs: int) -> int:
    """Each planted fault is found, and nothing is found in a loader that has none."""
    everything = measure(planted.ADAPTERS, list(CHECKS), seed, True, kills, jobs)
    failures = 0
    for name, outcome in everything[planted.Sound.name].items():
        if not outcome.right:
            failures += 1
            print(f"{planted.Sound.name}: {name} is {words(outcome)}\n{outcome.note}")
    for adapter, rows in planted.FAULTS.items():
        for name, outcome in everything[adapter.name].items():
            missed = name in rows and outcome.right
            invented = name not in rows and not outcome.right
            if missed or invented:
                failures += 1
                verdict = "the fault is not found" if missed else "there is no such fault"
                print(f"{adapter.name}: {name} is {words(outcome)}: {verdict}")
    print(f"self-test: {len(planted.FAULTS)} planted faults, {failures or 'no'} failures")
    return 1 if failures else 0


def chosen(words: str | None, among: Sequence[str]) -> list[str]:
    if words is None:
        return list(among)
    # Names of loaders have commas.
    asked = [word.strip() for word in words.replace(", ", "\0").split(",")]
    asked = [word.replace("\0", ", ") for word in asked]
    for word in asked:
        if word not in among:
            sys.exit(f"no {word!r}: there are {'; '.join(among)}")
    return [name for name in among if name in asked]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loaders", metavar="A,B", help="some of them, by name; `ours`: those of infeed")
    parser.add_argument("--checks", metavar="A,B", help=f"some of {', '.join(CHECKS)}")
    parser.add_argument("--seed", type=int, help="of orders and kills; none: any, which is printed")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keeps what was found as JSON")
    parser.add_argument("--keep", action="store_true", help="what --out has of other loaders stays, and is in the table")
    parser.add_argument("--table", type=Path, nargs="+", metavar="PAGE", help="writes it between the marks of pages")
    parser.add_argument("--render", type=Path, metavar="FILE", help="measures nothing: the table of kept results")
    parser.add_argument("--kills", type=int, default=4, help="of each run that is killed, two or more")
    parser.add_argument("--jobs", type=int, default=2, help="loaders at a time")
    parser.add_argument(
        "--fork",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="runs are forked from a process that has imported the loader, where that works; else each imports it",
    )
    parser.add_argument("--self-test", action="store_true", help="checks the harness, with faults that are planted")
    args = parser.parse_args()
    if args.kills < 2:
        parser.error("--kills: one in each of two epochs")
    seed = random.SystemRandom().randrange(10_000) if args.seed is None else args.seed
    if args.render is not None:
        shown = json.loads(args.render.read_text())
        if args.table is None:
            print(table(shown))
        for page in args.table or ():
            write(page, shown)
        return 0
    print(f"seed {seed}", flush=True)
    if args.self_test:
        return self_test(seed, args.kills, args.jobs)

    among = {adapter.name: adapter for adapter in adapters.ADAPTERS}
    ours = [name for name, adapter in among.items() if adapter.ours]
    loaders = [among[name] for name in (ours if args.loaders == "ours" else chosen(args.loaders, list(among)))]
    installed, told, left_out = list[type[Adapter]](), dict[str, str](), list[str]()
    for adapter in loaders:
        found = versions(adapter)
        if found is None:
            left_out.append(adapter.name)
            print(f"{adapter.name}: {' or '.join(adapter.packages)} is not installed: left out")
        else:
            installed.append(adapter)
            told |= found
    begun = time.monotonic()
    outcomes = measure(installed, chosen(args.checks, list(CHECKS)), seed, args.fork, args.kills, args.jobs)
    results: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "machine": f"{os.cpu_count()} vCPU, {platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "seed": seed,
        "seconds": round(time.monotonic() - begun),
        "versions": told,
        "left_out": left_out,
        "loaders": {
            loader: {"checks": {name: kept(outcome) for name, outcome in each.items()}}
            for loader, each in outcomes.items()
        },
    }
    if args.keep and args.out is not None and args.out.exists():
        before = json.loads(args.out.read_text())
        results["seconds"] += before["seconds"]
        results["versions"] = before["versions"] | told
        results["left_out"] = [name for name in before["left_out"] if name not in outcomes]
        results["loaders"] = before["loaders"] | results["loaders"]
    if args.out is not None:
        args.out.write_text(lines(results) + "\n")
    for page in args.table or ():
        write(page, results)
    red = [
        f"{adapter.name}: {name}: {words(outcome)}"
        for adapter in installed
        if adapter.ours
        for name, outcome in outcomes[adapter.name].items()
        if not outcome.unsupported and not outcome.right and name not in adapter.unpromised
    ]
    for line in red:
        print(f"NOT 0: {line}")
    print(f"{len(installed)} loaders, {results['seconds']} s, {len(red)} checks of infeed are not 0")
    return 1 if red else 0


def kept(outcome: Outcome) -> dict[str, Any]:
    """Without what is empty, and without folders of this machine."""
    found = asdict(outcome)
    if outcome.error:
        found["error"], found["note"] = short(outcome.error), ""
    return {key: value for key, value in found.items() if value}


def lines(results: dict[str, Any]) -> str:
    """JSON with a line for each check."""
    text = json.dumps({**results, "loaders": None}, indent=1)
    loaders = []
    for loader, each in results["loaders"].items():
        checks = [f"   {json.dumps(name)}: {json.dumps(outcome)}" for name, outcome in each["checks"].items()]
        loaders.append(f'  {json.dumps(loader)}: {{"checks": {{\n' + ",\n".join(checks) + "\n  }}")
    return text.replace('"loaders": null', '"loaders": {\n' + ",\n".join(loaders) + "\n }")


def commit() -> str:
    """The last one that touched what is measured, which is none of the harness."""
    words = ["git", "log", "-1", "--format=%H", "--", "crates", "python/infeed", "python/src"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
