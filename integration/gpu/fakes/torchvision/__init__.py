from . import datasets, io, models, transforms

__version__ = "0 (fake)"
