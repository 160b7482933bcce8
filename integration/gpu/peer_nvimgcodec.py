#!/usr/bin/env python3
"""NVIDIA nvImageCodec on the GPU: batched decode, then the crop, resize and normalise with torch.

    peer_nvimgcodec.py FOLDER [--seconds S] [--runs N] [--quick]

Its default decoder shares each batch between engines, hybrid decoding and CPU by itself; engines alone and fixed shares
are tried beside it. *Decode of the crop* hands it the crop's window, so that less is decoded.
"""

import torch
from nvidia import nvimgcodec

import peers


def read(path):
    # A stream keeps the bytes that it was made of.
    with open(path, "rb") as file:
        return nvimgcodec.CodeStream(file.read())


def kinds(*shares):
    """Backends by name, with the share of a batch that each is given."""
    kind = nvimgcodec.BackendKind
    return [nvimgcodec.Backend(getattr(kind, name), load_hint=hint, load_hint_policy=nvimgcodec.LoadHintPolicy.FIXED)
            for name, hint in shares]


BACKENDS = {
    "default": lambda: None,
    # What engines do not take goes to the next.
    "engines": lambda: kinds(("HW_GPU_ONLY", 1.0), ("HYBRID_CPU_GPU", 1.0)),
    "engines 0.65 + hybrid": lambda: kinds(("HW_GPU_ONLY", 0.65), ("HYBRID_CPU_GPU", 1.0)),
    "engines 0.5 + CPU": lambda: kinds(("HW_GPU_ONLY", 0.5), ("CPU_ONLY", 1.0)),
    "hybrid": lambda: kinds(("HYBRID_CPU_GPU", 1.0)),
}


def decoder(stream, backends, threads):
    """A function from code streams to images on the GPU: CHW views of HWC pixels."""
    made = nvimgcodec.Decoder(device_id=torch.cuda.current_device(), max_num_cpu_threads=threads, backends=BACKENDS[backends]())

    def decode(streams):
        images = made.decode(streams, cuda_stream=stream.cuda_stream)
        failed = sum(image is None for image in images)
        if failed:
            raise RuntimeError(f"{failed} of {len(images)} files were not decoded")
        # With CPU backends the pixels may lie in host memory.
        tensors = [torch.from_dlpack(image.cuda(cuda_stream=stream.cuda_stream)) for image in images]
        return [tensor.permute(2, 0, 1) for tensor in tensors]

    return decode


def alone(backends, threads):
    return lambda stream: decoder(stream, backends, threads)


def crops(backends, threads, regions):
    def make(stream):
        decode, finish = decoder(stream, backends, threads), peers.Finish()

        def of_regions(streams):
            windows = [peers.crop_of(code.height, code.width) for code in streams]
            parts = [code.get_sub_code_stream(region=nvimgcodec.Region(top, left, top + height, left + width))
                     for code, (top, left, height, width) in zip(streams, windows)]
            return finish(decode(parts), cropped=True)

        return of_regions if regions else lambda streams: finish(decode(streams))

    return make


def cases(cores, quick):
    share = lambda decoders: max(1, cores // decoders)
    wanted = [("default", 1), ("engines", 1), ("engines 0.5 + CPU", 1)] if quick else [
        (backends, decoders) for backends in BACKENDS for decoders in (1, 2, 4)]
    for backends, decoders in wanted:
        yield f"decode alone, {backends}", 128, decoders, False, alone(backends, share(decoders))
    wanted = [("default", 2), ("engines", 2)] if quick else [(backends, decoders) for backends in BACKENDS for decoders in (1, 2, 4)]
    for backends, decoders in wanted:
        yield f"decode, crop, normalise, {backends}", 128, decoders, True, crops(backends, share(decoders), False)
    for backends, decoders in wanted[:1] if quick else wanted:
        yield f"decode of the crop, normalise, {backends}", 128, decoders, True, crops(backends, share(decoders), True)


if __name__ == "__main__":
    peers.main("nvimgcodec", f"nvImageCodec {nvimgcodec.__version__}, torch {torch.__version__}", cases, read=read, doc=__doc__)
