import contextlib
import time


class Stream:
    cuda_stream = 4096

    def synchronize(self):
        pass


@contextlib.contextmanager
def stream(which):
    assert isinstance(which, Stream)
    yield


class Event:
    def __init__(self, *, enable_timing):
        assert enable_timing
        self.at = None

    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        assert self.at

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


def current_device():
    return 0


def get_device_name():
    return "no GPU (fake)"
