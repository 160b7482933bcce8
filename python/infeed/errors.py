"""What can go wrong, by how to react. Each class is also the builtin of the same meaning, so that plain code catches it.

All have four attributes, None where they mean nothing:

- ``record``: the index in the dataset of the sample it is about,
- ``object``: the file or object it is about,
- ``field``: the field of the record, where it has several images,
- ``hint``: what to do.
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "CorruptError",
    "DeniedError",
    "DeviceError",
    "EmptyError",
    "Error",
    "InternalError",
    "IoError",
    "NotFoundError",
    "OutOfMemoryError",
    "StateError",
    "UnsupportedError",
]


class Error(Exception):
    """Every error of infeed."""

    record: int | None = None
    object: str | None = None
    field: str | None = None
    hint: str | None = None


class ConfigError(Error, ValueError):
    """A setting that cannot be, or two that do not go together."""


class EmptyError(Error, ValueError):
    """Nothing to train on: no records, or fewer than a batch needs."""


class NotFoundError(Error, FileNotFoundError):
    """A file, object, bucket, format or name that is not there."""


class DeniedError(Error, PermissionError):
    """Access was refused: permissions of files, credentials of a store."""


class IoError(Error, OSError):
    """A disk, store or network failed, also after all tries."""


class CorruptError(Error):
    """Data that is damaged, or not what it says it is."""


class UnsupportedError(Error):
    """Data of a kind that nobody here reads."""


class StateError(Error, ValueError):
    """A saved state that does not belong to this dataset, order or version."""


class DeviceError(Error, RuntimeError):
    """A GPU that is not there, or failed."""


class OutOfMemoryError(Error, MemoryError):
    """A sample or a setting that asks for more memory than the budget or the machine has."""


class InternalError(Error, RuntimeError):
    """A mistake of infeed's own. Please report it."""
