"""Shared code of the package's benchmarks, and access to the harness of `benches/peers`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PEERS = Path(__file__).resolve().parents[2] / "benches" / "peers"
sys.dont_write_bytecode = True
sys.path.append(str(PEERS))

import compare  # type: ignore[import-not-found]  # noqa: E402
import photographs  # type: ignore[import-not-found]  # noqa: E402

__all__ = ["about", "compare", "headline", "hold", "photos", "save"]


def hold(cores: int) -> list[int]:
    """Restricts this process and its children to this many cores. Returns the cores' numbers."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < cores:
        sys.exit(f"--cores {cores}: this process may use {len(allowed)}")
    os.sched_setaffinity(0, allowed[:cores])
    return allowed[:cores]


def photos(folder: str, records: int, root: Path) -> Path:
    """Copies the photographs to the RAM disk, repeated under new names until there are `records`."""
    found = [path for path in sorted(Path(folder).glob("*/*")) if path.is_file() and photographs.is_jpeg(path)]
    if not found:
        sys.exit(f"--photos {folder}: no JPEG in class folders; give a folder like ImageNet's train")
    return Path(photographs.lay_out(found, records, root / "photographs"))


def about(cores: list[int]) -> dict[str, Any]:
    """The machine, the commit and the measured package."""
    import infeed

    return {
        "version": 1,
        "machine": compare.describe_machine(cores),
        "commit": compare.output_of("git", "rev-parse", "HEAD"),
        "uncommitted_changes": bool(compare.output_of("git", "status", "--porcelain", "--untracked-files=no")),
        "infeed": infeed.__version__,
        "package": str(Path(infeed.__file__).parent),
    }


def headline(told: Mapping[str, Any]) -> str:
    """The result of `about` in one line."""
    machine, changed = told["machine"], ", with changes" if told["uncommitted_changes"] else ""
    return (
        f"{machine['cpu']}, {machine['cores_used']} cores, load {machine['load_average'][0]:.1f}, "
        f"Python {machine['python']}, infeed {told['infeed']} ({told['package']}), "
        f"commit {(told['commit'] or 'unknown')[:10]}{changed}"
    )


def save(path: str | None, figures: Mapping[str, Any]) -> None:
    if path:
        Path(path).write_text(json.dumps(figures, indent=1) + "\n")
        print(f"\nAll figures: {path}")
