import contextlib


class Stream:
    cuda_stream = 4096

    def synchronize(self):
        pass


@contextlib.contextmanager
def stream(which):
    assert isinstance(which, Stream)
    yield


def synchronize():
    pass


def _sleep(cycles):
    assert cycles > 0


def mem_get_info():
    return 1 << 30, 2 << 30


def current_device():
    return 0


def is_initialized():
    return True
