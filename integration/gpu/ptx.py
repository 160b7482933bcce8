#!/usr/bin/env python3
"""Compiles the kernels in crates/infeed-cuda/src/cuda to the PTX that is checked in.

    python3 integration/gpu/ptx.py [--nvrtc LIBNVRTC] [--out FOLDER]

NVRTC 12.0.140 for compute_70: every driver from 525 on reads its PTX, and it gives the same bytes each time. Get it with

    pip install nvidia-cuda-nvrtc-cu12==12.0.140

It needs no GPU. Without --nvrtc it looks for that wheel among the packages of this Python.
"""

import argparse
import ctypes
import glob
import hashlib
import os
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
KERNELS = os.path.join(ROOT, "crates", "infeed-cuda", "src", "cuda")
NAMES = ["resample", "picture", "colour"]
OPTIONS = ["--gpu-architecture=compute_70", "--std=c++14", "--fmad=false"]
# The version that NVRTC 12.0.140 writes into its output; others give other bytes.
RELEASE = "release 12.0, V12.0.140"
WHEEL = "pip install nvidia-cuda-nvrtc-cu12==12.0.140"


def find():
    """The library of the wheel, or None."""
    for folder in sys.path:
        found = glob.glob(os.path.join(folder, "nvidia", "cuda_nvrtc", "lib", "libnvrtc.so.12"))
        if found:
            return found[0]
    return None


def compile(nvrtc, name, source):
    """PTX text of CUDA source."""
    program = ctypes.c_void_p()

    def call(name, *args):
        status = getattr(nvrtc, name)(*args)
        if status:
            nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
            log = ""
            if program:
                size = ctypes.c_size_t()
                nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
                buffer = ctypes.create_string_buffer(size.value)
                nvrtc.nvrtcGetProgramLog(program, buffer)
                log = "\n" + buffer.value.decode()
            sys.exit(f"{name}: {nvrtc.nvrtcGetErrorString(status).decode()}{log}")

    call("nvrtcCreateProgram", ctypes.byref(program), source, f"{name}.cu".encode(), 0, None, None)
    options = (ctypes.c_char_p * len(OPTIONS))(*[o.encode() for o in OPTIONS])
    call("nvrtcCompileProgram", program, len(OPTIONS), options)
    size = ctypes.c_size_t()
    call("nvrtcGetPTXSize", program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    call("nvrtcGetPTX", program, ptx)
    call("nvrtcDestroyProgram", ctypes.byref(program))
    return ptx.value.decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvrtc", help="path of libnvrtc.so.12, version 12.0.140")
    parser.add_argument("--out", default=KERNELS, help="folder to write to; default: that of the checked-in files")
    args = parser.parse_args()
    library = args.nvrtc or find()
    if not library:
        sys.exit(f"no NVRTC among the packages of this Python; run: {WHEEL}")
    try:
        nvrtc = ctypes.CDLL(library)
    except OSError as error:
        sys.exit(f"{library} can't be loaded ({error}); run: {WHEEL}")
    for name in NAMES:
        with open(os.path.join(KERNELS, f"{name}.cu"), "rb") as file:
            source = file.read()
        ptx = compile(nvrtc, name, source)
        if RELEASE not in ptx:
            sys.exit(f"{library} is not version 12.0.140; run: {WHEEL}")
        head = "\n".join(
            [
                f"// PTX of {name}.cu: written by integration/gpu/ptx.py, not by hand.",
                f"// source sha256: {hashlib.sha256(source).hexdigest()}",
                f"// options: {' '.join(OPTIONS)}",
                "",
            ]
        )
        with open(os.path.join(args.out, f"{name}.ptx"), "w", newline="\n") as file:
            file.write(head + ptx.rstrip("\n") + "\n")


if __name__ == "__main__":
    main()
