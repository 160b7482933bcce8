"""The folders where pip installs NVIDIA's libraries, which the engine loads if there is a GPU."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# nvidia-nvjpeg, nvidia-nvjpeg-cu12, and the copy in torchvision's wheel.
_PLACES = ("nvidia/cu13/lib", "nvidia/nvjpeg/lib", "torchvision.libs")


def nvjpeg_folders(path: Iterable[str] | None = None) -> list[str]:
    """The existing folders below the entries of ``sys.path``, or of ``path``, where pip installs nvJPEG.

    Checks only whether the folders exist; imports nothing.
    """
    # `sys.path` may hold other things than strings; Python ignores them too.
    entries = [entry for entry in (sys.path if path is None else path) if isinstance(entry, str)]
    folders = (os.path.join(os.path.abspath(entry), place) for entry in entries for place in _PLACES)
    return [folder for folder in folders if os.path.isdir(folder)]
