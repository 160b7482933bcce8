"""The command line: ``python -m infeed …`` and the script ``infeed`` are one."""

from __future__ import annotations

import signal
import sys

from . import _native
from .libraries import nvjpeg_folders


def main() -> int:
    """Runs the command that ``sys.argv`` names; gives the exit code."""
    # A command ends at Ctrl-C, or has its own way of ending.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _native.look_for_nvjpeg(nvjpeg_folders())
    return _native.command([sys.executable, "-m", "infeed"], sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
