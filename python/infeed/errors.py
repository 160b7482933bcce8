"""Exceptions, one class per reaction. Most classes also derive from the builtin of the same meaning.

    try:
        loader = infeed.Loader("train/", batch_size=256)
    except FileNotFoundError as error:      # infeed.errors.NotFoundError
        print(error.hint)

Every error has four attributes, each None if it does not apply:

- ``record`` (int): index of the affected record in the dataset,
- ``object`` (str): the affected file or object,
- ``field`` (str): the affected field, if the record has several images,
- ``hint`` (str): what to do.
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
    """Base class of all errors of infeed."""

    record: int | None = None
    object: str | None = None
    field: str | None = None
    hint: str | None = None


class ConfigError(Error, ValueError):
    """An invalid setting, or two settings that exclude each other."""


class EmptyError(Error, ValueError):
    """No records, or too few for one batch."""


class NotFoundError(Error, FileNotFoundError):
    """A file, object, bucket, format or name does not exist."""


class DeniedError(Error, PermissionError):
    """Access was denied: file permissions, or the credentials of a store."""


class IoError(Error, OSError):
    """A disk, store or network failed, even after retries."""


class CorruptError(Error):
    """Data is damaged, or not of the kind that it claims to be. Also: the dataset's or ``map``'s own code raised."""


class UnsupportedError(Error):
    """Data of a kind that infeed does not read."""


class StateError(Error, ValueError):
    """A saved state belongs to another dataset, order or version."""


class DeviceError(Error, RuntimeError):
    """A GPU is missing, or failed."""


class OutOfMemoryError(Error, MemoryError):
    """A sample or a setting needs more memory than the budget or the machine has."""


class InternalError(Error, RuntimeError):
    """A bug in infeed. Please report it."""
