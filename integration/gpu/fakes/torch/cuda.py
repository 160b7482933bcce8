import contextlib


class Stream:
    cuda_stream = 4096

    def synchronize(self):
        pass

    def wait_stream(self, other):
        assert isinstance(other, Stream)


class CUDAGraph:
    captured = False

    def replay(self):
        assert self.captured


@contextlib.contextmanager
def graph(which):
    assert not which.captured
    yield
    which.captured = True


@contextlib.contextmanager
def stream(which):
    assert isinstance(which, Stream)
    yield


def current_stream():
    return Stream()


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
