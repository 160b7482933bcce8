"""The command line: ``python -m infeed …``, which is also the script ``infeed``."""

from __future__ import annotations

import signal
import sys

from . import _native
from .libraries import nvjpeg_folders


def main() -> int:
    """Runs the command in ``sys.argv``. Returns the exit code."""
    # Ctrl-C ends a command at once, unless the command handles it itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _native.look_for_nvjpeg(nvjpeg_folders())
    return _native.command([sys.executable, "-m", "infeed"], sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
