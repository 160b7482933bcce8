#!/usr/bin/env python3
"""The README's table: figures of one run of compare.py, kept in benches/results/headline.json.

`compare.py … --headline` calls this when it is done; `headline.py RESULTS.json` does it for a run of before;
`headline.py --check` fails when README and figures differ, or README names another machine or commit.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "benches/results/headline.json"
README = ROOT / "README.md"
WRITER = "written by benches/peers/compare.py"

# Of a workload: its name here, in the table, and the unit.
ROWS = (
    ("photos", "ImageNet train: random resized crop, flip, normalise", "images/s"),
    ("val", "ImageNet val: resize, centre crop, normalise", "images/s"),
    ("large", "Photographs of 12 megapixels, train", "images/s"),
    ("cifar", "CIFAR-10: pad, crop, flip, normalise", "records/s"),
    ("cells", "5-channel TIFFs of 50×50, resized to 220", "files/s"),
)
TORCH = ("torch DataLoader + torchvision v2", "torch DataLoader + tifffile + torchvision v2", "torch, whole batches by hand")
FIGURES = ("images_per_second", "infeed_is_times", "first_epoch_is_times", "cpu_ms_per_image", "first_batch_seconds", "peak_rss_bytes")


def reduce(results):
    """What the table needs, and what one must know to believe it."""
    kept = {key: results[key] for key in ("started", "commit", "uncommitted_changes", "infeed", "machine", "rounds", "left_out")}
    kept["workloads"] = {}
    for name, workload in results["workloads"].items():
        rows = {
            row: {key: figures[key] for key in FIGURES if key in figures} | {"disturbed": figures["disturbed"]}
            for row, figures in workload["summary"].items()
        }
        kept["workloads"][name] = {key: workload[key] for key in ("transform", "records", "batch_size", "epochs")} | {"rows": rows}
    return kept


def median(rows, name, key):
    return rows[name][key]["median"]


def fastest(rows, names):
    there = [name for name in names if name in rows]
    return max(there, key=lambda name: median(rows, name, "images_per_second"), default=None)


def beside(rows, name):
    """A peer's rate, and how many times that infeed is, of the same rounds."""
    if name is None:
        return ""
    return f"{median(rows, name, 'images_per_second'):,.0f} ({median(rows, name, 'infeed_is_times'):.1f}×)"


def row(rows, unit):
    """The cells of a workload: infeed's rate, that of its first epoch, and the peers beside it."""
    first = "infeed, first epoch"
    yield f"**{median(rows, 'infeed', 'images_per_second'):,.0f}** {unit}"
    yield f"{median(rows, first, 'images_per_second'):,.0f}" if first in rows else ""
    yield beside(rows, fastest(rows, [name for name in rows if name.startswith("DALI")]))
    yield beside(rows, fastest(rows, TORCH))


def sentence(kept):
    rows = kept["workloads"]["photos"]["rows"]
    times = [f"{median(rows, name, key):.1f}" for name in peers(rows) for key in ("infeed_is_times", "first_epoch_is_times")]
    return (
        f"On the same cores it loads ImageNet **{times[0]} times as fast as NVIDIA DALI's fastest CPU setting and {times[2]} times as fast as PyTorch's DataLoader**; in the\n"
        f"first epoch, when it meets each file for the first time, {times[1]} and {times[3]} times."
    )


def peers(rows):
    return fastest(rows, [name for name in rows if name.startswith("DALI")]), fastest(rows, TORCH)


def table(kept):
    rows = kept["workloads"]["photos"]["rows"]
    dali, torch = peers(rows)
    lines = ["| on 2 cores, from a RAM disk | infeed | its first epoch | NVIDIA DALI (CPU) | torch |", "|---|---|---|---|---|"]
    for workload, title, unit in ROWS:
        if workload not in kept["workloads"]:
            continue
        lines.append(f"| {title} | {' | '.join(row(kept['workloads'][workload]['rows'], unit))} |")
    for title, key, scale, form, unit in (
        ("processor time, train", "cpu_ms_per_image", 1, ".2f", "ms an image"),
        ("first batch, train", "first_batch_seconds", 1e3, ",.0f", "ms"),
        ("peak memory, train", "peak_rss_bytes", 1e-6, ",.0f", "MB"),
    ):
        cells = [f"{scale * median(rows, name, key):{form}}" for name in ("infeed", "infeed, first epoch", dali, torch)]
        lines.append(f"| {title} | **{cells[0]}** {unit} | {' | '.join(cells[1:])} |")
    machine, commit = kept["machine"], kept["commit"][:7]
    antialiased = beside(rows, "DALI") if "DALI" in rows else "not measured"
    lines += [
        "",
        f"{machine['cpu']}, {machine['cores_used']} virtual cores, {kept['started'][:10]}, commit {commit}; medians of {kept['rounds']} rounds in turn of one run of "
        "[`compare.py`](benches/peers/README.md), which wrote this table ([ranges](benches/results/headline.json)). DALI runs with the fastest of three settings,",
        f"which does not antialias; infeed and torch do. With antialiasing, on ImageNet train: {antialiased}.",
    ]
    return "\n".join(lines)


def placed(text, kept):
    """The README with the sentence and the table of these figures."""
    for name, words in (("headline", sentence(kept)), ("figures", table(kept))):
        opening, closing = f"<!-- {name}: {WRITER} -->", f"<!-- /{name} -->"
        begin, end = text.find(opening), text.find(closing)
        if begin < 0 or end < begin:
            sys.exit(f"{README}: the lines {opening} and {closing} are not there")
        text = f"{text[: begin + len(opening)]}\n\n{words}\n\n{text[end:]}"
    return text


def write(results):
    kept = reduce(results)
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    README.write_text(placed(README.read_text(), kept))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="?", help="what compare.py wrote")
    parser.add_argument("--check", action="store_true", help="fail when the README's table is not that of the kept figures")
    args = parser.parse_args()
    if args.check:
        text = README.read_text()
        if text != placed(text, json.loads(KEPT.read_text())):
            sys.exit("README.md: its table is not that of benches/results/headline.json; `python3 benches/peers/headline.py RESULTS.json` writes both")
    elif args.results:
        write(json.loads(Path(args.results).read_text()))
    else:
        parser.error("give a results file, or --check")


if __name__ == "__main__":
    main()
