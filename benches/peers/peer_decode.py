"""JPEG decoders alone: whole files in memory to RGB u8, in as many processes as --threads, which share nothing.

`examples/decode.rs` does the same with infeed's decoder.
"""

import json
import multiprocessing
import os
import time

import measure


def simplejpeg():
    import simplejpeg

    return f"simplejpeg {simplejpeg.__version__}", lambda data: simplejpeg.decode_jpeg(data, "RGB")


def turbojpeg():
    from importlib.metadata import version

    import turbojpeg

    decoder = turbojpeg.TurboJPEG()
    return f"PyTurboJPEG {version('PyTurboJPEG')}", lambda data: decoder.decode(data, pixel_format=turbojpeg.TJPF_RGB)


def opencv():
    import cv2
    import numpy

    cv2.setNumThreads(0)
    decode = lambda data: cv2.imdecode(numpy.frombuffer(data, numpy.uint8), cv2.IMREAD_COLOR_RGB)
    return f"OpenCV {cv2.__version__}", decode


def torchvision():
    import torch
    from torchvision import __version__
    from torchvision.io import ImageReadMode, decode_jpeg

    torch.set_num_threads(1)
    tensor = lambda data: torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return f"torchvision {__version__}", lambda data: decode_jpeg(tensor(data), mode=ImageReadMode.RGB)


def pillow():
    import io

    import PIL
    from PIL import Image

    return f"Pillow {PIL.__version__}", lambda data: Image.open(io.BytesIO(data)).convert("RGB")


DECODERS = {f.__name__: f for f in (simplejpeg, turbojpeg, opencv, torchvision, pillow)}


def work(args, barrier, results):
    version, decode = DECODERS[args.variant]()
    files = []
    for path in measure.photos(args.folder)[0]:
        with open(path, "rb") as file:
            files.append(file.read())
    start = time.perf_counter()
    decode(files[0])
    first = time.perf_counter() - start
    total = 0
    for data in files:
        # Equal work shows in it: decoders differ by rounding only.
        total += int(measure.numpy.asarray(decode(data)).sum(dtype=measure.numpy.int64))
    barrier.wait()
    cpu, start = time.process_time(), time.perf_counter()
    for _ in range(args.epochs):
        for data in files:
            decode(data)
    end = time.perf_counter()
    results.put({
        "version": version,
        "images": args.epochs * len(files),
        "span": (start, end),
        "cpu_seconds": time.process_time() - cpu,
        "first_batch_seconds": first,
        "peak_rss_bytes": measure.kib(os.getpid(), "status", "VmHWM:") * 1024,
        "sum": total,
    })


def main():
    args = measure.arguments(__doc__, tuple(DECODERS))
    barrier, results = multiprocessing.Barrier(args.threads), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=work, args=(args, barrier, results)) for _ in range(args.threads)]
    for worker in workers:
        worker.start()
    all_of = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    begins, ends = zip(*(one.pop("span") for one in all_of))
    total = {key: sum(one[key] for one in all_of) for key in ("images", "cpu_seconds", "peak_rss_bytes")}
    # The first to begin, the last to end.
    print(json.dumps({**all_of[0], **total, "seconds": max(ends) - min(begins), "processes": 1}))


if __name__ == "__main__":
    main()
