from . import data, dlpack
