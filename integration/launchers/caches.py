"""Rows: what ranks under Slurm read from a store when they share a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import Bench, Outcome, Row
from store import Store

LOADER = ("--shuffle", "7", "--checksum", "--batch-size", "4", "--last-batch", "partial", "--device", "cpu", "--workers", "1",
          "--transform", "random_resized_crop:32;normalize", "--log-every", "1")  # fmt: skip


def epoch(bench: Bench, store: Store, name: str, cache: str, states: Path, *more: str) -> tuple[list[dict[str, Any]], int]:
    """Four ranks on two nodes, and how often they read of the store; `cache` may name $SLURM_NODEID."""
    folder = bench.new(name)
    script = folder / "rank-of-step.sh"
    # Epochs are runs of their own, so that no rank is in the second while another is in the first.
    script.write_text(
        f'#!/bin/sh\nset -- "$@" --cache "{cache}:64MiB" --state {states}/$SLURM_PROCID\n'
        f'[ -e {states}/$SLURM_PROCID ] && set -- "$@" --resume {states}/$SLURM_PROCID\nexec "$@"\n'
    )
    script.chmod(0o755)
    rank = bench.rank(folder, *LOADER, *more)
    rank[rank.index(str(bench.data))] = store.url
    store.begin()
    bench.must("srun", "-N2", "-n4", "--ntasks-per-node=2", script, *rank, env=store.environment)
    reports = bench.reports(folder)
    # A store that is slow for a moment, as on a busy machine, is asked a second time: that is told, and no loss of the cache.
    again = sum(report["requests"][why] for report in reports for why in ("retries", "hedges"))
    return reports, sum(store.reads.values()) - again


def hits(reports: list[dict[str, Any]]) -> int:
    return sum((report.get("cache") or {}).get("hits", 0) for report in reports)


def shared(name: str, cache: str, nodes: int) -> Row:
    def run(bench: Bench) -> Outcome:
        outcome = Outcome(ranks=4, nodes=2, told="Slurm")
        states, folder = bench.new("states"), bench.new("cache")
        with bench.store() as store:
            count = len(store.objects)
            alone = bench.new("alone")
            command = bench.rank(alone, *LOADER, "--epochs", 2)
            command[command.index(str(bench.data))] = str(bench.photos)
            bench.must(*command)
            _, first_reads = epoch(bench, store, "first", f"{folder}/{cache}", states)
            second, second_reads = epoch(bench, store, "second", f"{folder}/{cache}", states, "--epochs", "2")
        told = {str(report["config"].get("launcher")) for report in second}
        outcome.told = ", ".join(sorted(told))
        bench.add_up(outcome, second, int(bench.reports(alone)[0]["checksum"], 16))
        found = hits(second)
        outcome.note = (
            f"{count} objects: {first_reads} reads in epoch 1, {second_reads} in epoch 2, where {found} came from the cache"
        )
        if first_reads != count:
            outcome.wrong.append(f"{count} reads in epoch 1, each object once, not {first_reads}")
        if found + second_reads != count:
            outcome.wrong.append(f"in epoch 2 each object comes from the cache or the store: {found} + {second_reads}")
        if nodes == 1 and second_reads:
            outcome.wrong.append(f"no reads in epoch 2, not {second_reads}")
        if nodes == 2 and not 0 < second_reads < count:
            outcome.wrong.append(f"fewer than {count} reads in epoch 2: what the other node read before, not {second_reads}")
        if told != {"Slurm"}:
            outcome.wrong.append(f"the launcher is Slurm, not {outcome.told}")
        return outcome

    return Row(name, "Slurm", run, ("slurm",))


ROWS = [
    shared("cache: one folder of both nodes", "all", 1),
    shared("cache: a folder for each node", "$SLURM_NODEID", 2),
]
