"""The other loaders: what each needs, where it is installed, and whether it can be imported.

Groups that agree on versions share a virtual environment, each installed by itself: one that fails takes no other along.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Group:
    name: str
    # The environment: a folder below --setup.
    venv: str
    packages: tuple
    # Ends well where the group works.
    test: str
    # Installed before, for packages whose build needs what is there already.
    before: tuple = ()
    options: tuple = ()
    # Outside of Python.
    needs: str = ""


GROUPS = (
    Group("dali", "dali", ("nvidia-dali-cuda130", "numpy", "pynrrd", "tifffile"), "import nvidia.dali"),
    # numba is named here, so that one version of NumPy is found for all that share this environment.
    Group("torch", "torch", ("torch", "torchvision", "numba", "numpy", "pillow", "pycocotools", "pynrrd", "tifffile"), "import torchvision"),
    Group("hand", "torch", ("simplejpeg", "opencv-python-headless"), "import cv2, numba, simplejpeg"),
    Group(
        "albumentations",
        "torch",
        ("albumentations", "simplejpeg", "opencv-python-headless"),
        # Without a question to PyPI for a newer version.
        "import os; os.environ['NO_ALBUMENTATIONS_UPDATE'] = '1'; import albumentations, cv2, simplejpeg, torchvision",
    ),
    Group("kornia", "torch", ("kornia-rs", "opencv-python-headless"), "import cv2, kornia_rs.pipeline, torchvision"),
    Group("grain", "torch", ("grain", "opencv-python-headless"), "import cv2, grain"),
    Group(
        "spdl",
        "torch",
        ("spdl", "spdl-io"),
        "import spdl.io, spdl.pipeline; spdl.io.decode_config()",
        needs="the libraries of FFmpeg (Debian: ffmpeg)",
    ),
    Group(
        "turbojpeg",
        "torch",
        # From 2.0 on it wants libjpeg-turbo 3, which Debian 12 has not.
        ("PyTurboJPEG<2",),
        "import turbojpeg; turbojpeg.TurboJPEG()",
        needs="libturbojpeg (Debian: libturbojpeg0)",
    ),
    Group(
        "ffcv",
        "torch",
        ("ffcv==1.0.2",),
        "import ffcv.loader",
        before=(
            *("setuptools", "wheel", "pybind11", "pytorch-pfn-extras", "terminaltables"),
            *("fastargs", "assertpy", "tqdm", "psutil", "pandas", "opencv-python-headless"),
        ),
        options=("--no-build-isolation",),
        needs="a C++ compiler, OpenCV and libturbojpeg with their headers (Debian: g++ pkg-config libopencv-dev libturbojpeg0-dev)",
    ),
    Group("tf", "tf", ("tensorflow-cpu",), "import tensorflow"),
)

# What parts.py writes its forms with, and who reads them beside infeed.
PARTS = Group(
    "parts",
    "torch",
    ("aiohttp", "datasets", "fsspec", "google-crc32c", "h5py", "numpy", "pillow", "pyarrow", "zarr>=3", "zstandard"),
    "import aiohttp, datasets, google_crc32c, h5py, PIL, zarr, zstandard; import pyarrow.parquet",
)

# What scale.py opens beside infeed. An environment of its own: streaming asks for older versions of what others use.
SCALE = (
    Group("torch", "scale", ("torch", "torchvision", "pycocotools"), "import torchvision, pycocotools"),
    Group("litdata", "scale", ("litdata",), "import litdata"),
    Group("streaming", "scale", ("mosaicml-streaming",), "import streaming"),
    Group("grain", "scale", ("grain",), "import grain; from array_record.python import array_record_module"),
)


def find(folder, given, wanted, groups=GROUPS):
    """The interpreter of each group that works: name to path. `given` are interpreters by name of environment.

    With `folder`, what is missing there is installed first. What does not work is left out, and a line says why.
    """
    found, absent = {}, []
    for group in groups:
        if wanted and group.name not in wanted:
            continue
        python = given.get(group.venv) or (folder and str(Path(folder).absolute() / group.venv / "bin" / "python"))
        if not python:
            continue
        why = failure(python, group)
        if why and group.venv not in given:
            why = install(python, group) or failure(python, group)
        if why:
            absent.append(f"{group.name} is left out: {why}" + (f"; it needs {group.needs}" if group.needs else ""))
        else:
            found[group.name] = python
    for line in absent:
        print(line, file=sys.stderr)
    return found, absent


def failure(python, group):
    """Why the group cannot be used with this interpreter, in a line; None when it can."""
    if not Path(python).exists():
        return "not installed"
    done = subprocess.run([python, "-c", group.test], capture_output=True, text=True)
    return None if done.returncode == 0 else last_line(done.stderr)


def install(python, group):
    """Why it could not be installed, in a line; None when it was."""
    venv = Path(python).parent.parent
    print(f"installing {group.name} in {venv} …", file=sys.stderr)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    steps = [] if Path(python).exists() else [[sys.executable, "-m", "venv", str(venv)]]
    steps += [[*pip, *group.before]] if group.before else []
    steps += [[*pip, *group.options, *group.packages]]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode:
            log = venv.parent / f"{group.name}.log"
            log.write_text(done.stdout + done.stderr)
            return f"{last_line(done.stderr)} ({log})"
    return None


def last_line(text):
    """What went wrong is in the last line that says `error`, or else in the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no word"])[-1][:300]
