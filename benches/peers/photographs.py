"""Photographs: where they come from, and who loads them."""

import itertools
import json
import math
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from entries import HERE, Contestant, Workload, in_python, infeed_command, peer_command, read_infeed, read_peer

JPEG_MAGIC = b"\xff\xd8"
TRAIN = "RandomResizedCrop(224), flip, normalise"
# Recipes of today: name, title, transform.
CROP = "random_resized_crop:224;horizontal_flip"
RECIPES = (
    # What others cost more than: a crop of theirs without the step. That of 224 is `train`.
    ("plain-176", "RandomResizedCrop(176), flip, normalise", "random_resized_crop:176;horizontal_flip;normalize"),
    (
        "trivial",
        "RandomResizedCrop(176), flip, TrivialAugmentWide (bilinear), normalise, RandomErasing(0.1)",
        "torchvision-v2-train",
    ),
    ("randaugment", f"{TRAIN}, with RandAugment(2, 9)", f"{CROP};rand_augment:2,9;normalize"),
    (
        "jitter",
        f"{TRAIN}, with ColorJitter(0.4, 0.4, 0.4, 0.1) and RandomGrayscale(0.2)",
        f"{CROP};color_jitter:0.4,0.4,0.4,0.1;random_grayscale:0.2;normalize",
    ),
    ("blur", f"{TRAIN}, with GaussianBlur(23, 0.1 to 2)", f"{CROP};gaussian_blur:23;normalize"),
    ("bicubic", "RandomResizedCrop(224, bicubic), flip, normalise", "random_resized_crop:224,bicubic;horizontal_flip;normalize"),
    ("dino", "DINO's ten views of a photograph: two of 224, eight of 96", "dino"),
)
# Detection, on photographs with invented boxes and outlines: name, title, transform, whether with masks.
DETECTION = (
    (
        "ssd",
        "SSD300: photometric distortion, zoom out, IoU crop, flip, Resize(300x300), normalise, with boxes",
        "random_photometric_distort:0.5;random_zoom_out:0.5,0.45;random_iou_crop;horizontal_flip;resize_exact:300;"
        "normalize;sanitize_bounding_boxes",
        False,
    ),
    (
        "lsj",
        "large scale jitter at 512: ScaleJitter, FixedSizeCrop, flip, normalise, with boxes and masks of polygons",
        "scale_jitter:512;horizontal_flip;fixed_size_crop:512;normalize;sanitize_bounding_boxes",
        True,
    ),
)
BOXES, CORNERS = 6, 24
# The same photographs in other formats: name, and what the title calls it.
RECODED = {"webp": "WebP, quality 85", "tiff": "TIFF, LZW"}
WORKS = ("train", "val", "decode", "large", "scaling", "recipes", *RECODED)
# Of 12 megapixels: enough that the records of an epoch fill two batches.
LARGE_FILES, LARGE_RECORDS = 60, 128


# Data.


def stage(args, root, peers):
    """The workloads of --work, with their files on the RAM disk."""
    found = [path for path in sorted(Path(args.photos).glob("*/*")) if path.is_file() and is_jpeg(path)]
    if not found:
        sys.exit(f"--photos {args.photos}: no JPEG in class folders; give a folder like ImageNet's train")
    photos = Workload(
        name="photos",
        title=TRAIN,
        transform="imagenet-train",
        batch_size=64,
        epochs=args.epochs,
        folder=lay_out(found, args.records, root / "photographs"),
        records=args.records,
    )
    val = {"title": "Resize(256), CenterCrop(224), normalise", "transform": "imagenet-val", "shuffle": "none"}
    for work in args.work:
        if work == "train":
            yield photos
        elif work == "val":
            yield replace(photos, name="val", **val)
        elif work == "scaling":
            yield replace(photos, name="scaling", work="photos", title=f"{TRAIN}, over worker threads")
        elif work == "decode":
            yield from decoding(args, found, root)
        elif work == "large":
            yield from large(args, photos, root, peers)
        elif work in RECODED:
            yield from recoded(args, work, photos, root, peers)
        else:
            if work == "recipes":
                yield photos
            for name, title, transform in RECIPES:
                if work in ("recipes", name):
                    yield replace(photos, name=name, title=title, transform=transform)
            for name, title, transform, masks in DETECTION:
                if work == name:
                    options = ("--annotations", str(annotate(photos.folder)), *(("--masks",) if masks else ()))
                    yield replace(photos, name=name, title=title, transform=transform, options=options, batch_size=16)


def lay_out(found, records, root, suffix=".JPEG"):
    """A set of `records` files in class folders: each file is copied once, then linked by new names.

    Beside it lies `once`, with each file a single time.
    """
    if len(found) > records:
        found = random.Random(0).sample(found, records)
    for number, path in zip(range(records), itertools.cycle(found)):
        turn = number // len(found)
        name = Path(path.parent.name) / f"{path.stem}.{turn}{suffix}"
        target, once = root / "all" / name, root / "once" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if turn == 0:
            shutil.copyfile(path, target)
            once.parent.mkdir(parents=True, exist_ok=True)
            os.link(target, once)
        else:
            os.link(target.with_name(f"{path.stem}.0{suffix}"), target)
    size = sum(path.stat().st_size for path in found) / len(found)
    print(f"photographs: {len(found)} files (mean {size / 1e3:,.0f} KB), repeated to {records} records", file=sys.stderr)
    return root / "all"


def annotate(folder):
    """COCO's JSON beside the folder: invented boxes in each photograph, each around an outline that is almost an ellipse."""
    target = folder.parent / "annotations.json"
    if target.exists():
        return target
    draw = random.Random(0)
    images, marks, sizes = [], [], {}
    for path in sorted(folder.glob("*/*")):
        inode = path.stat().st_ino
        height, width = sizes[inode] = sizes.get(inode) or frame(path)[:2]
        images.append({"id": len(images) + 1, "file_name": str(path.relative_to(folder)), "height": height, "width": width})
        for _ in range(BOXES):
            w, h = (side * draw.uniform(0.08, 0.6) for side in (width, height))
            left, top = draw.uniform(0, width - w), draw.uniform(0, height - h)
            turns = [2 * math.pi * corner / CORNERS for corner in range(CORNERS)]
            radii = [draw.uniform(0.8, 1) / 2 for _ in turns]
            outline = [
                round(value, 2)
                for turn, radius in zip(turns, radii)
                for value in (left + w * (0.5 + radius * math.cos(turn)), top + h * (0.5 + radius * math.sin(turn)))
            ]
            box = [round(value, 2) for value in (left, top, w, h)]
            marks.append({
                "id": len(marks) + 1,
                "image_id": len(images),
                "category_id": draw.randint(1, 20),
                "bbox": box,
                "area": box[2] * box[3],
                "iscrowd": 0,
                "segmentation": [outline],
            })
    kinds = [{"id": number, "name": f"kind {number}"} for number in range(1, 21)]
    target.write_text(json.dumps({"images": images, "annotations": marks, "categories": kinds}))
    return target


def is_jpeg(path):
    # By its first bytes: torchvision's JPEG decoder refuses what only has the name (ImageNet has such a file).
    with path.open("rb") as file:
        return file.read(len(JPEG_MAGIC)) == JPEG_MAGIC


def frame(path):
    """Of a JPEG: height, width, and components: 1 is gray, 3 a picture in colours."""
    data, at = path.read_bytes(), 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        # Frames, but no tables (DHT, JPG, DAC).
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = (int.from_bytes(data[at + place : at + place + 2], "big") for place in (5, 7))
            return height, width, data[at + 9]
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0, 0


def decoding(args, found, root):
    if not args.infeed_decode.exists():
        print(f"decode is left out: no {args.infeed_decode}; cargo build --release --example decode", file=sys.stderr)
        return
    # infeed decodes gray files to one channel, others to three.
    colours = [path for path in found if frame(path)[2] == 3]
    yield Workload(
        name="decode",
        title="whole files in memory to RGB u8, one thread",
        transform="",
        batch_size=1,
        epochs=args.epochs,
        folder=lay_out(colours, args.records, root / "colours"),
        records=args.records,
        dtype="u8",
        layout="nhwc",
    )


def large(args, photos, root, peers):
    files, records = (16, 64) if args.quick else (LARGE_FILES, LARGE_RECORDS)
    if "torch" not in peers:
        print("large is left out: making the photographs takes Pillow, of the group torch", file=sys.stderr)
        return
    command = [peers["torch"], str(HERE / "make_large.py"), args.photos, str(root / "made"), str(files)]
    subprocess.run(command, check=True)
    folder = lay_out(sorted((root / "made").glob("*/*")), records, root / "large")
    yield replace(photos, name="large", work="photos", title=f"4000x3000: {TRAIN}", folder=folder, records=records)


def recoded(args, work, photos, root, peers):
    if "torch" not in peers:
        print(f"{work} is left out: making the files takes Pillow, of the group torch", file=sys.stderr)
        return
    made = root / f"made-{work}"
    once = photos.folder.parent / "once"
    subprocess.run([peers["torch"], str(HERE / "recode.py"), str(once), str(made), work], check=True)
    folder = lay_out(sorted(made.glob("*/*")), args.records, root / work, f".{work}")
    yield replace(photos, name=work, work="photos", title=f"{RECODED[work]}: {TRAIN}", folder=folder)


# Contestants.


def contestants(args, workload, peers):
    if workload.name == "decode":
        return decoders(args, workload, peers)
    if workload.name == "scaling":
        return scaling(args, workload, peers)
    if workload.name in RECODED:
        alone = [Contestant("infeed", infeed_command(args, workload), read_infeed)]
        return alone + in_python(args, workload, peers) + list(others(args, workload, peers))
    return infeed(args, workload) + in_python(args, workload, peers) + list(others(args, workload, peers))


def infeed(args, workload, cores=None):
    """As in later epochs, and as in the first.

    Names repeat files, so with an index the first epoch, too, would meet what it learned of them. Therefore: one epoch over
    the files, each once, leaves an index that every run begins with; and runs without any index, where every epoch is a first one.
    """
    root = workload.folder.parent
    command = infeed_command(args, workload, cores)
    index, copy = root / f"{workload.name}.index", root / "index"
    if not index.exists():
        # Whatever is done to the photographs, their files are the same.
        once = replace(workload, folder=root / "once", epochs=0, transform="imagenet-train", options=())
        learn = [*infeed_command(args, once), "--decode-index", str(index)]
        # The last option said counts.
        learn[learn.index("--last-batch") + 1] = "partial"
        subprocess.run(learn, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    config = root / "first-epoch.toml"
    config.write_text("decode_index_bytes = 0\n")
    return [
        # A run adds to the index what it learns.
        Contestant(
            "infeed", [*command, "--decode-index", str(copy)], read_infeed, before=lambda: shutil.copyfile(index, copy)
        ),
        Contestant("infeed, first epoch", [*command, "--config", str(config)], read_infeed),
    ]


# Group, script, variant, name, and the works it enters. The first of DALI and of tf.data does infeed's work; their others
# give up some quality for speed.
TABLE = (
    ("dali", "peer_dali.py", "antialias", "DALI", "photos val large trivial randaugment jitter blur bicubic plain-176 dino webp tiff"),
    ("dali", "peer_dali.py", "no-antialias", "DALI, no antialias", "photos val large webp tiff"),
    ("dali", "peer_dali.py", "fast-idct", "DALI, no antialias, fast IDCT", "photos val large scaling"),
    (
        *("torch", "peer_torch.py", "v2", "torch DataLoader + torchvision v2"),
        "photos val large scaling trivial randaugment jitter blur bicubic plain-176 dino ssd lsj webp",
    ),
    (
        *("torch", "peer_torch.py", "pil", "torch DataLoader + PIL"),
        "photos val large trivial randaugment jitter blur bicubic plain-176 dino webp tiff",
    ),
    (
        *("albumentations", "peer_torch.py", "albumentations", "torch DataLoader + albumentations"),
        "photos jitter blur bicubic plain-176",
    ),
    ("kornia", "peer_torch.py", "kornia-rs", "torch DataLoader + kornia-rs", "photos jitter blur bicubic plain-176"),
    ("tf", "peer_tf.py", "antialias", "tf.data, antialias", "photos val"),
    ("tf", "peer_tf.py", "plain", "tf.data", "photos val large scaling"),
    ("grain", "peer_grain.py", None, "Grain + OpenCV", "photos val large"),
    ("spdl", "peer_spdl.py", None, "SPDL", "photos val large"),
    ("hand", "peer_hand.py", "jpeg", "by hand: simplejpeg + OpenCV", "photos val large scaling"),
    ("hand", "peer_hand.py", "dct", "by hand, scaled in the DCT", "val large"),
)


def others(args, workload, peers, cores=None):
    for group, script, variant, name, works in TABLE:
        if group in peers and workload.name in works.split():
            yield Contestant(name, peer_command(args, workload, peers[group], script, variant, cores), read_peer)
    if workload.name in ("photos", "val") and not args.no_raw:
        yield from raw(args, workload, peers)


def raw(args, workload, peers):
    """On files made before, from which no JPEG, or an easier one, has to be decoded: less work, ten times the space."""
    root = workload.folder.parent
    shards = root / "shards"
    if not shards.exists():
        command = [args.infeed, "prepare", str(workload.folder), str(shards), "--raw"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    command = infeed_command(args, replace(workload, folder=shards))
    yield Contestant("infeed, raw pixels", command, read_infeed, prepared=True)
    rows = (
        ("ffcv", "peer_ffcv.py", "raw", "write-raw", "raw.beton", "FFCV, raw pixels"),
        ("ffcv", "peer_ffcv.py", "jpg", "write-jpg", "jpg.beton", "FFCV, smaller JPEGs"),
        ("hand", "peer_hand.py", "raw", "convert", "raw", "by hand, raw pixels as FFCV"),
    )
    for group, script, variant, write, file, name in rows:
        if group not in peers:
            continue
        if not (root / file).exists():
            command = peer_command(args, workload, peers[group], script, write)
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
            if done.returncode:
                print(f"{name} is left out: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
                continue
        command = peer_command(args, workload, peers[group], script, variant)
        yield Contestant(name, command, read_peer, prepared=True)


def decoders(args, workload, peers):
    def read_decoder(line, workload):
        # One thread that never waits.
        return read_peer({"version": "infeed", "processes": 1, "cpu_seconds": line["seconds"], **line}, workload)

    command = [str(args.infeed_decode), str(workload.folder), str(workload.epochs)]
    found = [Contestant("infeed", command, read_decoder, cores=1)]
    for group, decoder in (
        ("hand", "simplejpeg"),
        ("turbojpeg", "turbojpeg"),
        ("hand", "opencv"),
        ("torch", "torchvision"),
        ("torch", "pillow"),
    ):
        if group in peers:
            command = peer_command(args, workload, peers[group], "peer_decode.py", decoder, cores=1)
            found.append(Contestant(decoder, command, read_peer, cores=1))
    return found


def scaling(args, workload, peers):
    """On 1 core, 2, 4 and so on: as many threads as cores, held to them."""
    found = []
    cores = [1 << n for n in range(args.cores.bit_length()) if 1 << n < args.cores] + [args.cores]
    for n in cores:
        entered = infeed(args, workload, n) + list(others(args, workload, peers, n))
        if "hand" in peers:
            # What the machine allows: processes that share nothing but the cores' clock, cache and memory.
            command = peer_command(args, workload, peers["hand"], "peer_decode.py", "simplejpeg", n)
            every = lambda line, workload, n=n: read_peer(line, replace(workload, batch_size=1, records=n * workload.records))
            entered.append(Contestant("apart: a decoder a process", command, every))
        words = f"{n} core{'s' if n > 1 else ''}"
        found += [
            replace(one, name=f"{one.name}, {words}", family=one.name, rival=f"infeed, {words}", cores=n) for one in entered
        ]
    return found
