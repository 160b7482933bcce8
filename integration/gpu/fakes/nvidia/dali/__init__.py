"""Graphs of DALI: each operator gives nodes, a pipeline gives batches of what was said."""

import functools
import os
import time

from . import fn, types

__version__ = "0 (fake)"


class Pipeline:
    def __init__(self, define, arguments, batch_size, num_threads, device_id, prefetch_queue_depth):
        assert batch_size > 0 and num_threads > 0 and device_id == 0 and prefetch_queue_depth > 0
        self.define, self.arguments, self.outputs = define, arguments, None

    def build(self):
        self.outputs = self.define(*self.arguments)
        assert len(self.outputs) == 2

    def run(self):
        assert self.outputs, "build() comes first"
        time.sleep(0.002)
        return self.outputs


def pipeline_def(define):
    @functools.wraps(define)
    def make(*arguments, batch_size, num_threads, device_id, prefetch_queue_depth):
        assert os.path.isdir(arguments[0])
        return Pipeline(define, arguments, batch_size, num_threads, device_id, prefetch_queue_depth)

    return make
