"""What stands around a loop: logs, notebooks, the command line."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import infeed
import pytest


def Loader(data: Any, **more: Any) -> infeed.Loader:  # noqa: N802 (it stands for the class)
    return infeed.Loader(data, **{"transform": "center_crop:24", "batch_size": 10, **more})


def test_the_engine_logs_by_logging(damaged: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "infeed"):
        list(Loader(damaged, on_bad_sample="substitute"))
    told = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert any(level == "INFO" and "epoch planned" in words and "steps=1" in words for _, level, words in told), told
    assert any(level == "WARNING" and "3.png" in words for _, level, words in told), told
    assert all(name.startswith("infeed.") for name, _, _ in told)
    caplog.clear()
    with caplog.at_level(logging.ERROR, "infeed"):
        list(Loader(damaged, on_bad_sample="substitute"))
    assert not caplog.records


def test_notebooks_show_datasets_batches_and_reports(folder: str) -> None:
    dataset = infeed.open(folder)
    html = dataset._repr_html_()
    assert "100" in html and "cat, dog" in html and "image: image" in html
    for more in ({}, {"dtype": "uint8", "channels_last": True}, {"transform": "center_crop:24;normalize"}, {"dtype": "bfloat16"}):
        loader = Loader(folder, **more)
        batch = next(iter(loader))
        html = batch._repr_html_()
        assert "data:image/png;base64,iVBOR" in html and "10 rows" in html
    report = loader.report()
    assert json.loads(json.dumps(report))["batches"] >= 1
    assert pickle.loads(pickle.dumps(report)) == report
    # One batch is no curve; its stages are bars.
    assert 'class="verdict"' in report.page and 'class="bars"' in report.page and "bf16" in report.page
    assert "<iframe" in report._repr_html_()


def test_a_sheet_shows_the_colours(folder: str) -> None:
    import base64

    image = pytest.importorskip("PIL.Image")
    import io

    html = next(iter(Loader(folder, dtype="uint8")))._repr_html_()
    sheet = image.open(io.BytesIO(base64.b64decode(html.split("base64,")[1].split('"')[0])))
    colours = {colour for _, colour in sheet.convert("RGB").getcolors(100_000)}
    assert {(record, 255 - record, 0) for record in range(10)} <= colours


def command(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "infeed", *args], capture_output=True, text=True, timeout=120, **more)


def test_the_command_line_is_in_the_wheel(folder: str, tmp_path: Path) -> None:
    assert command("--version").stdout.strip() == f"infeed {infeed.__version__}"
    told = command("inspect", folder, "--json", "-")
    assert told.returncode == 0 and json.loads(told.stdout)["records"] == 100
    report = tmp_path / "run.json"
    ran = command("run", folder, "--transform", "center_crop:24", "--batch-size", "10", "--json", str(report))
    assert ran.returncode == 0, ran.stderr
    assert json.loads(report.read_text())["samples"] == 100
    wrong = command("run", folder, "--no-such-option")
    assert wrong.returncode == 2 and "--no-such-option" in wrong.stderr
    failed = command("run", str(tmp_path / "nothing"))
    assert failed.returncode == 1 and "nothing" in failed.stderr


def test_commands_start_others_of_their_kind(folder: str) -> None:
    swept = command(
        "sweep", folder, "--transform", "center_crop:24", "--batch-size", "10,20", "--workers", "1", "--max-batches", "3", "--json", "-"
    )
    assert swept.returncode == 0, swept.stderr
    assert len(json.loads(swept.stdout)["cells"]) == 2


def test_the_script_is_the_module() -> None:
    script = Path(sys.executable).with_name("infeed")
    if not script.exists():
        pytest.skip("infeed is not installed as a wheel here")
    assert subprocess.run([script, "--version"], capture_output=True, text=True).stdout == command("--version").stdout


def test_ctrl_c_ends_a_command(folder: str) -> None:
    args = [sys.executable, "-m", "infeed", "run", folder, "--transform", "center_crop:24", "--batch-size", "10"]
    args += ["--epochs", "1000000"]
    # Not as a shell's background job would start it.
    process = subprocess.Popen(
        args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert any("Epoch [" in line for line in process.stdout), "it has begun"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT), (out, err)
    assert "Traceback" not in err


def test_pinning_without_a_gpu_is_a_warning(folder: str) -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU")
    with pytest.warns(RuntimeWarning, match="pin_memory"):
        loader = Loader(folder, pin_memory=True)
    assert sum(batch.size for batch in loader) == 100
