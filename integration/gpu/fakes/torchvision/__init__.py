from . import io, models, transforms

__version__ = "0 (fake)"
