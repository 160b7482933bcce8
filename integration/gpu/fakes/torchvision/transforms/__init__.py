import enum

from . import v2


class InterpolationMode(enum.Enum):
    BILINEAR = "bilinear"
