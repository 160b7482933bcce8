"""SPDL: FFmpeg decodes, crops, scales (bilinear, antialiased) and mirrors on SPDL's threads; PyTorch normalises whole batches.

SPDL tells no size before it decodes, so the crop is drawn in one try and clipped to the image by an expression that FFmpeg evaluates.
"""

import importlib.metadata
import math
import random

import spdl.io
import torch
from spdl.pipeline import PipelineBuilder

import measure

SIDE = 224
MEAN = torch.tensor([255 * v for v in measure.IMAGENET_MEAN]).view(1, 3, 1, 1)
SCALE = torch.tensor([1 / (255 * v) for v in measure.IMAGENET_STD]).view(1, 3, 1, 1)
MIDDLE = (
    "scale='if(gt(iw\\,ih)\\,-1\\,256)':'if(gt(iw\\,ih)\\,256\\,-1)':flags=bilinear,crop=224:224,format=pix_fmts=rgb24"
)


def crop():
    area, ratio = random.uniform(0.08, 1), math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
    width, height = (f"min({side}\\,sqrt(iw*ih*{part:.6f}))" for side, part in (("iw", area * ratio), ("ih", area / ratio)))
    return (
        f"crop=w='{width}':h='{height}':x='(iw-ow)*{random.random():.6f}':y='(ih-oh)*{random.random():.6f}',"
        f"scale={SIDE}:{SIDE}:flags=bilinear{',hflip' if random.random() < 0.5 else ''},format=pix_fmts=rgb24"
    )


def main():
    args = measure.arguments(__doc__)
    torch.set_num_threads(1)
    train = args.workload == "photos"
    records = list(zip(*measure.photos(args.folder)))

    def decode(record):
        path, label = record
        packets = spdl.io.demux_image(path)
        return spdl.io.decode_packets(packets, filter_desc=crop() if train else MIDDLE), label

    def finish(decoded):
        images = spdl.io.to_torch(spdl.io.convert_frames([frames for frames, _ in decoded])).permute(0, 3, 1, 2)
        images = images.to(torch.float32, memory_format=torch.contiguous_format).sub_(MEAN).mul_(SCALE)
        return images, torch.tensor([label for _, label in decoded])

    class Source:
        def __iter__(self):
            yield from random.sample(records, len(records)) if train else records

    def epoch():
        builder = PipelineBuilder().add_source(Source()).pipe(decode, concurrency=args.threads)
        builder = builder.aggregate(args.batch_size, drop_last=True).pipe(finish, concurrency=1).add_sink(2)
        pipeline = builder.build(num_threads=args.threads)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=60)

    measure.run(f"SPDL {importlib.metadata.version('spdl')}", epoch, args.epochs, (args.batch_size, 3, SIDE, SIDE))


if __name__ == "__main__":
    main()
