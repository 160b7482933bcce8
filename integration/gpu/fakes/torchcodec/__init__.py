__version__ = "0 (fake)"
