#!/usr/bin/env python3
"""NVIDIA DALI on the GPU: mixed decode of the crop, resize, crop_mirror_normalize to f16, with several settings.

    peer_dali.py FOLDER [--seconds S] [--runs N] [--quick]

Says so and ends well where DALI is not installed.
"""

import argparse
import json
import os
import statistics
import sys
import time

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def say(name, **fields):
    print(json.dumps({"section": "dali", "name": name, **fields}), flush=True)


try:
    import nvidia.dali
    from nvidia.dali import fn, pipeline_def, types
except ImportError as error:
    say("versions", note=f"DALI is not installed here, and its wheel is too large to be taken along ({error})")
    sys.exit(0)


@pipeline_def
def photos(folder, load, antialias):
    files, labels = fn.readers.file(file_root=folder, random_shuffle=True, initial_fill=1024)
    images = fn.decoders.image_random_crop(
        files, device="mixed", random_area=(0.08, 1.0), random_aspect_ratio=(3 / 4, 4 / 3), num_attempts=10,
        hw_decoder_load=load, preallocate_width_hint=600, preallocate_height_hint=600)
    images = fn.resize(images, size=(224, 224), interp_type=types.INTERP_LINEAR, antialias=antialias)
    images = fn.crop_mirror_normalize(
        images, mirror=fn.random.coin_flip(), dtype=types.FLOAT16, output_layout="CHW",
        mean=[255 * v for v in MEAN], std=[255 * v for v in STD])
    return images, labels


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    say("versions", note=f"DALI {nvidia.dali.__version__}")
    cores, files = len(os.sched_getaffinity(0)), sum(len(names) for _, _, names in os.walk(args.folder))
    loads = (0.12, 0.4, 0.65, 0.9) if args.quick else (0.0, 0.12, 0.25, 0.4, 0.5, 0.65, 0.75, 0.9, 1.0)
    cases = [(load, cores, True, 256) for load in loads] + [(0.65, cores, False, 256), (0.65, cores, True, 128)]
    for load, threads, antialias, batch in cases:
        # Few files, as in a test.
        batch = min(batch, files)
        name = f"hw_decoder_load={load} threads={threads} batch={batch} antialias={antialias}"
        try:
            pipe = photos(args.folder, load, antialias, batch_size=batch, num_threads=threads, device_id=0,
                          prefetch_queue_depth=3)
            pipe.build()
            begin = time.perf_counter()
            while time.perf_counter() - begin < max(1.0, args.seconds / 2):
                pipe.run()
            rates = []
            for _ in range(args.runs):
                begin, images = time.perf_counter(), 0
                while time.perf_counter() - begin < args.seconds:
                    pipe.run()
                    images += batch
                rates.append(images / (time.perf_counter() - begin))
            say(name, unit="images/s", median=statistics.median(rates), low=min(rates), high=max(rates),
                runs=len(rates), more={"crop": True})
            del pipe
        except Exception as error:  # the other settings may work
            say(name, error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
