"""The report: what the figures come to, against which targets, as text."""

import json

PASS, FAIL, UNKNOWN = "pass", "FAIL", "unknown"
PEERS = ("torchvision", "nvimgcodec", "dali")

# What each part must tell, as (section, beginning of a figure's name): a run with --strict fails without.
EXPECTED = {
    "tests": [("on_gpu::jpegs_of_the_engines_are_close_to_the_cpus", "4:2:0, a side below"),
              ("on_gpu::a_cut_height_changes_no_pixel_of_the_crop", "rows from a cut file")],
    "smoke": [("smoke", "rows are the CPU's"), ("smoke", "memory waits"), ("smoke", "who decoded")],
    "photos": [("photos", "bare engines, whole"), ("photos", "bare engines, height cut"), ("photos", "auto adaptive workers="),
               ("photos", "nvjpeg-hardware only workers="), ("photos", "cpu + raw workers="), ("photos", "no GPU workers="),
               ("photos", "bare cpu pool")],
    "torchvision": [("torchvision", "decode alone"), ("torchvision", "decode, crop")],
    "resnet": [("resnet", "infeed-cuda")],
    "feeds": [("resnet", "infeed-gpu"), ("resnet", "infeed-cpu"), ("resnet", "dataloader")],
    "thousand": [("on_gpu::a_thousand_batches_and_many_loaders_leave_nothing_behind", "device bytes lost")],
    "threads": [("threads", "infeed, first epoch"), ("threads", "infeed, later epochs"), ("dataloader", "torch DataLoader")],
    "rates": [("wheel", "wheel, device=cuda"), ("wheel", "wheel, cpu")],
    "engines": [("machine", "devices"), ("machine", "engines"), ("bounds", "host to device"), ("bounds", "fill of the device"),
                ("engines", "hardware whole"), ("engines", "hardware height cut")],
    "nvimgcodec": [("nvimgcodec", "decode alone"), ("nvimgcodec", "decode, crop"), ("nvimgcodec", "decode of the crop")],
    "newer": [("engines", "hardware whole")],
    "graph": [("resnet", "infeed-gpu, a CUDA graph"), ("resnet", "infeed-cuda, a CUDA graph")],
    "connections": [("resnet", "infeed-cuda")],
    "recipes": [("recipes", "RandAugment"), ("recipes", "dino")],
    "kernels": [("kernels", "fill"), ("kernels", "50x50x5 to 220x220 f32"), ("kernels", "CIFAR"),
                ("kernels", "500x375x3 crops to 176x176 f32, TrivialAugmentWide"), ("kernels", "MixUp")],
    "memory": [("memory", "CIFAR-10"), ("memory", "50x50x5 to 220x220")],
    "dali": [("dali", "hw_decoder_load")],
}


def words(text, most=300):
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most // 2] + " … " + text[-most // 2 :]


# ---- what the figures come to -------------------------------------------------------------------------------------


def of(report, section, begin=""):
    """The figures of a section with a median, whose name begins so: with the nvJPEG that was chosen, if any was."""
    used = report["machine"].get("nvjpeg used")
    return [f for f in report["figures"] if f.get("section") == section and "median" in f and f["name"].startswith(begin)
            and f.get("nvjpeg", used) == used]


def best(figures):
    return max(figures, key=lambda figure: figure["median"], default=None)


def best_engines(report):
    """The best that nvJPEG's engines did alone in this run, by whoever measured it."""
    return best(of(report, "engines", "hardware") + of(report, "photos", "bare engines"))


def way(report, name):
    """The best of the loader with one way of decoding. The figures `…, cpu` beside it are milliseconds."""
    return best([f for f in of(report, "photos", name) if f["unit"] == "images/s"])


def loader(report):
    """As a user gets it."""
    return way(report, "auto adaptive")


def pool(report, workers):
    """The CPU alone with as many threads: the bare pool, or the loader without a GPU where that is faster (it knows the files' index)."""
    return best([f for f in of(report, "photos", "bare cpu pool") if f["more"].get("threads") == workers]
                + [f for f in of(report, "photos", "no GPU") if f["unit"] == "images/s" and f["more"].get("workers") == workers])


def share(report):
    """The loader's best share of the best engines and the CPU alone with as many threads as it has workers."""
    engines, shares = best_engines(report), []
    for figure in of(report, "photos", "auto adaptive"):
        cpu = pool(report, figure.get("more", {}).get("workers")) if figure["unit"] == "images/s" else None
        if engines and cpu:
            shares.append(figure["median"] / (engines["median"] + cpu["median"]))
    return max(shares, default=None)


def peer(report, name, crop):
    return best([f for f in of(report, name) if bool(f.get("more", {}).get("crop")) == crop])


def targets(report):
    """Name, value, whether it holds, what it means: against what the GPU path promises."""
    median = lambda figure: figure and figure["median"]
    notes = lambda section, end: [(f["name"], f["note"]) for f in report["figures"]
                                  if f.get("section") == section and f["name"].endswith(end) and "note" in f]
    ours, engines = median(loader(report)), best_engines(report)
    found = [("loader against bare engines + bare CPU pool", "photos", share(report), lambda v: v >= 0.95,
              f"at least 0.95 of {engines['name'] if engines else 'the engines'} + the CPU with as many threads")]
    for name in PEERS:
        theirs = peer(report, name, True)
        ratio = ours / theirs["median"] if ours and theirs else None
        found.append((f"loader against {name}", name, ratio, lambda v: v >= 1,
                      f"at least 1; its best: {theirs['name']}, {theirs['median']:,.0f} images/s" if theirs else "at least 1"))
    ratio = lambda a, b: a / b if a and b else None
    theirs = median(best(of(report, "dataloader")))
    fed = next((f for f in of(report, "resnet", "infeed-cuda") if f.get("part") == "resnet"), None)
    kernel = [note["of_fill_by_bytes_written"] for name, note in notes("kernels", ", shares") if name.startswith("50x50x5")]
    found += [
        ("engines + CPU against the CPU and copies", "photos", ratio(ours, median(way(report, "cpu + raw"))), lambda v: v >= 1, "at least 1"),
        ("loader against torch's DataLoader", "threads", ratio(ours, theirs), lambda v: v >= 4, "at least 4"),
        ("the CPU alone against torch's DataLoader", "threads", ratio(median(best(of(report, "threads", "infeed, later"))), theirs),
         lambda v: v >= 4, "at least 4"),
        ("ResNet-50 on infeed's batches, of its pace on one that stays", "resnet", fed and fed["more"]["of_resident"], lambda v: v >= 0.99, "at least 0.99"),
        ("CIFAR-10 on the device, records/s", "memory", median(best(of(report, "memory", "CIFAR"))), lambda v: v >= 2e6, "at least 2,000,000"),
        ("50x50x5 to 220x220 f32 kernel, of the bandwidth of a fill", "kernels", max(kernel, default=None), lambda v: v >= 0.9,
         "at least 0.9 of writing its output"),
    ]
    return found


def missing(report, parts):
    """What was to be measured and was not."""
    gone = []
    for part in parts:
        for section, begin in EXPECTED.get(part, []):
            if not any(f.get("section") == section and f["name"].startswith(begin) and "error" not in f for f in report["figures"]):
                gone.append(f"{part}: no figure {begin or '…'!r} in section {section!r}")
    return gone


# ---- as text ------------------------------------------------------------------------------------------------------


def brief(value):
    """Four digits of each number in it."""
    if isinstance(value, dict):
        return {key: brief(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [brief(inner) for inner in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def cell(value, most=500):
    return words(str(value), most).replace("|", "/")


def head(report):
    about, machine = report["about"], report["machine"]
    lines = [
        f"- infeed: commit {about.get('commit')}{' (dirty)' if about.get('dirty') else ''}, {about.get('rustc')}",
        f"- machine: {machine.get('gpu') or 'no GPU: ' + str(machine.get('why'))}; {machine.get('cpu')}, {machine.get('cores')} cores, {machine.get('kernel')}, Python {machine.get('python')}",
        f"- driver: {machine.get('nvidia-smi') or 'nvidia-smi tells nothing'}",
        f"- libnvcuvid.so.1: {machine.get('libnvcuvid.so.1') or 'missing: ' + str(machine.get('libnvcuvid.so.1_why'))}",
        f"- nvJPEG: {machine.get('nvjpeg used')}; infeed loads {machine.get('nvjpeg')}",
        f"- data: {report.get('records')} files of {report.get('source')}, warm, at {report.get('data')}",
        f"- command: `{report['command']}`; {report.get('seconds', 0):.0f} s",
    ]
    if report.get("is_mock"):
        lines.append("- THE MOCK GPU OF THE TESTS: all figures are meaningless, only that they were measured counts")
    return lines


def summary(report):
    """The figures to look at first, as (what, value, how)."""
    rows = []

    def row(what, figure):
        if figure:
            rows.append((what, f"{figure['median']:,.5g} {figure['unit']}", figure["name"]))

    by_handles = {}
    for figure in of(report, "engines", "hardware"):
        more = figure["more"]
        by_handles.setdefault((more["cut"], more["handles"]), []).append(figure)
    for (cut, handles), figures in sorted(by_handles.items()):
        row(f"engines alone, {'height cut' if cut else 'whole'}, {handles} handle{'s' if handles > 1 else ''}", best(figures))
    for name in ("bare engines, whole", "bare engines, height cut", "bare cpu pool"):
        row(name, best(of(report, "photos", name)))
    for figure in of(report, "photos"):
        if " workers=" in figure["name"]:
            row("loader" if figure["unit"] == "images/s" else "", figure)
    if value := share(report):
        rows.append(("loader's share of engines + CPU", f"{value:.3f}", f"of {best_engines(report)['name']} and the CPU with as many threads"))
    for name in PEERS:
        row(f"{name}, decoding alone", peer(report, name, False))
        row(f"{name}, batches of crops", peer(report, name, True))
    for figure in of(report, "wheel") + of(report, "threads") + of(report, "dataloader"):
        row("", figure)
    for figure in of(report, "resnet"):
        more = figure["more"]
        rows.append((f"ResNet-50, {figure['part']}", f"{more['of_resident']:.4f} of resident",
                     f"{figure['name']}: {more['step_ms']} ms a step, waits {more['wait_ms']} ms, launches {more['launch_ms']} ms, {more['cores_of_this_process']} cores"))
    row("kernel", best([f for f in of(report, "kernels", "50x50x5 to 220x220 f32") if f["unit"] == "GB/s written"]))
    row("fill of memory", best(of(report, "kernels", "fill")))
    row("CIFAR-10 from memory", best(of(report, "memory", "CIFAR")))
    for figure in of(report, "recipes"):
        if figure["unit"] == "images/s":
            row("recipe", figure)
    return rows


def host_times(report):
    """What the host did for the engines, in microseconds by phase: columns and rows."""
    notes = [f for f in report["figures"] if f["name"].endswith(", host µs") and isinstance(f.get("note"), dict)]
    phases = sorted({phase for figure in notes for phase in figure["note"]})
    rows = [(f["name"][: -len(", host µs")], *(brief(f["note"].get(phase)) for phase in phases)) for f in notes]
    return ["how", *(phase.replace("_", " ") for phase in phases)], rows


def threads(report):
    """Cores that the threads of a figure took, by their names."""
    lines = []
    for figure in report["figures"]:
        # Elsewhere it is a number.
        took_each = (figure.get("more") or {}).get("threads")
        for name, took in took_each.items() if isinstance(took_each, dict) else []:
            if took["cores"] >= 0.005:
                lines.append((f"{figure['section']}: {figure['name']}", name, took.get("threads", ""), took["cores"], took.get("busiest", "")))
    return lines


def table(columns, rows):
    return ["", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns),
            *("| " + " | ".join(cell(value) for value in row) + " |" for row in rows)]


def markdown(report):
    order = {FAIL: 0, UNKNOWN: 1, PASS: 2}
    lines = ["# infeed on a GPU", "", *head(report), "", "## What to look at first"]
    lines += table(["what", "best", "how"], summary(report))
    columns, times = host_times(report)
    if times:
        lines += ["", "## The host's microseconds for the engines", *table(columns, times)]
    lines += ["", "## Checks"]
    checks = sorted(report["checks"], key=lambda check: order[check["result"]])
    lines += table(["result", "check", "what"], [(c["result"], c["name"], cell(c["what"], 600)) for c in checks])
    if report["notes"]:
        lines += ["", "## Notes", "", *[f"- {note}" for note in report["notes"]]]
    if taken := threads(report):
        lines += ["", "## Cores by thread", "", "Of the loader's own threads and those of the libraries, while batches were taken."]
        lines += table(["figure", "threads", "how many", "cores", "the busiest"], taken)
    lines += ["", "## Figures", "", "Median of several runs after one to warm up, and the lowest and highest."]
    heading, rows = None, []
    for figure in [*report["figures"], {}]:
        title = f"{figure.get('section')}{', nvJPEG ' + figure['nvjpeg'] if 'nvjpeg' in figure else ''}"
        if title != heading and rows:
            lines += ["", f"### {heading}", *table(["figure", "median", "lowest", "highest", "unit", "runs"], rows)]
            rows = []
        heading = title
        if "median" in figure:
            rows.append((figure["name"], *(f"{figure[key]:,.5g}" for key in ("median", "low", "high")), figure["unit"], figure["runs"]))
        elif figure:
            what = json.dumps(brief(figure.get("note", figure.get("error"))), ensure_ascii=False)
            rows.append((figure["name"], what, "", "", "error" if "error" in figure else "", ""))
    lines += ["", "## Parts", *table(["part", "seconds", "end"], [(p["name"], f"{p['seconds']:.1f}", p["end"]) for p in report["parts"]])]
    return "\n".join(lines)


def short(report, out):
    """What fits a screen: the checks that matter, and the best figures."""
    checks = report["checks"]
    count = lambda result: sum(check["result"] == result for check in checks)
    lines = ["", "== report", *head(report), f"- checks: {count(PASS)} pass, {count(FAIL)} FAIL, {count(UNKNOWN)} unknown", ""]
    lines += [f"{c['result']:7} {c['name']}: {words(c['what'], 260)}" for c in checks if c["result"] == FAIL][:12]
    lines += [f"{c['result']:7} {c['name']}: {words(c['what'], 120)}" for c in checks if c["result"] == UNKNOWN][:8]
    lines += [f"{c['result']:7} {c['name']}: {words(c['what'], 160)}" for c in checks
              if c["result"] == PASS and c["name"].startswith("target")]
    lines += [""] + [f"{what:40} {value:>22}  {how}" for what, value, how in summary(report)]
    lines += ["", f"{'part':14} seconds"] + [f"{p['name']:14} {p['seconds']:7.1f}  {p['end']}" for p in report["parts"]]
    lines += ["", f"all of it: {out}/report.md, report.json, log.txt"]
    return "\n".join(lines)
