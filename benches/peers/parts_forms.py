"""Photographs as loose files, and as datasets whose records share what is read; written by the formats' own libraries.

    python benches/peers/parts_forms.py PHOTOS INTO --records 600 --group 50

`--group` records are a row group of Parquet, an MDS shard, a TFRecord file. MDS alone is written by hand: its library comes
with PyTorch. Zarr and HDF5 hold pixels of one size instead of JPEGs.
"""

import argparse
import gzip
import json
import shutil
import struct
from pathlib import Path

import google_crc32c
import h5py
import numpy
import pyarrow
import pyarrow.parquet
import zarr
import zstandard
from PIL import Image

SIDE = 128
# Rows of a chunk, of arrays.
ROWS = 16
GROUPS_PER_FILE = 4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, help="class folders of JPEGs")
    parser.add_argument("into", type=Path)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--group", type=int, required=True)
    args = parser.parse_args()
    found = sorted(path for path in args.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not found:
        raise SystemExit(f"{args.photos} holds no .jpg, .jpeg or .JPEG files")
    classes = sorted({path.parent.name for path in found})
    # As shards are packed: in random order. Equal photographs are as far from one another as there are others.
    order = numpy.random.default_rng(1).permutation(len(found))
    chosen = [found[order[n % len(found)]] for n in range(args.records)]
    images, labels = [path.read_bytes() for path in chosen], [classes.index(path.parent.name) for path in chosen]

    folder(args.into / "files", chosen)
    parquet(args.into / "parquet", images, labels, args.group)
    mds(args.into / "mds", images, labels, args.group)
    tfrecord(args.into / "tfrecord", images, labels, args.group)
    pixels = numpy.stack([numpy.asarray(Image.open(path).convert("RGB").resize((SIDE, SIDE))) for path in chosen])
    arrays(args.into, pixels, numpy.array(labels, numpy.int64))


def folder(into, chosen):
    for n, path in enumerate(chosen):
        (into / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, into / path.parent.name / f"{n:06}.jpg")


def parquet(into, images, labels, group):
    """As `datasets` writes it for the hub, whose viewer asks for row groups of a few dozen images."""
    into.mkdir(parents=True)
    kind = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
    features = {"image": {"_type": "Image"}, "label": {"dtype": "int64", "_type": "Value"}}
    told = {"huggingface": json.dumps({"info": {"features": features}})}
    schema = pyarrow.schema({"image": kind, "label": pyarrow.int64()}, metadata=told)
    rows = [{"bytes": image, "path": f"{n:06}.jpg"} for n, image in enumerate(images)]
    each = group * GROUPS_PER_FILE
    files = -(-len(rows) // each)
    for number in range(files):
        part = slice(number * each, (number + 1) * each)
        table = pyarrow.table([pyarrow.array(rows[part], kind), pyarrow.array(labels[part])], schema=schema)
        pyarrow.parquet.write_table(table, into / f"train-{number:05}-of-{files:05}.parquet", row_group_size=group)


def mds(into, images, labels, group):
    """https://docs.mosaicml.com/projects/streaming/en/latest/preparing_datasets/basic_dataset_conversion.html"""
    into.mkdir(parents=True)
    columns = {"column_encodings": ["jpeg", "int"], "column_names": ["image", "label"], "column_sizes": [None, 8]}
    about = {"version": 2, "format": "mds", "compression": "zstd:3", "hashes": [], "size_limit": 1 << 26, **columns}
    shards = []
    for start in range(0, len(images), group):
        samples = [
            struct.pack("<I", len(image)) + image + struct.pack("<q", label)
            for image, label in zip(images[start : start + group], labels[start : start + group])
        ]
        config = json.dumps({key: about[key] for key in sorted(about) if key != "version"}, sort_keys=True).encode()
        at = [4 + 4 * (len(samples) + 1) + len(config)]
        for sample in samples:
            at.append(at[-1] + len(sample))
        raw = struct.pack(f"<{len(at) + 1}I", len(samples), *at) + config + b"".join(samples)
        packed, name = zstandard.compress(raw, 3), f"shard.{len(shards):05}.mds"
        (into / f"{name}.zstd").write_bytes(packed)
        shards.append({
            **about,
            "samples": len(samples),
            "raw_data": {"basename": name, "bytes": len(raw), "hashes": {}},
            "zip_data": {"basename": f"{name}.zstd", "bytes": len(packed), "hashes": {}},
        })
    (into / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


def tfrecord(into, images, labels, group):
    """Records of `tf.train.Example`, whose protobuf is few enough fields to be written by hand."""
    into.mkdir(parents=True)
    starts = range(0, len(images), group)
    for number, start in enumerate(starts):
        with gzip.open(into / f"train-{number:05}-of-{len(starts):05}.tfrecord.gz", "wb", compresslevel=6) as file:
            for image, label in zip(images[start : start + group], labels[start : start + group]):
                features = feature(b"image", 1, field(1, image)) + feature(b"label", 3, field(1, varint(label)))
                example = field(1, features)
                length = struct.pack("<Q", len(example))
                file.write(length + masked(length) + example + masked(example))


def feature(name, kind, values):
    return field(1, field(1, name) + field(2, field(kind, values)))


def field(number, body):
    return bytes([number << 3 | 2]) + varint(len(body)) + body


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def masked(data):
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def arrays(into, pixels, labels):
    chunks = (ROWS, *pixels.shape[1:])
    for name, rows in (("zarr", ROWS), ("zarr-rows", 1)):
        group = zarr.create_group(into / f"{name}.zarr", zarr_format=3)
        codec = zarr.codecs.ZstdCodec(level=3)
        group.create_array("image", data=pixels, chunks=(rows, *pixels.shape[1:]), compressors=codec)
        group.create_array("label", data=labels, chunks=labels.shape, compressors=codec)
    with h5py.File(into / "pixels.h5", "w") as file:
        file.create_dataset("image", data=pixels, chunks=chunks, compression="gzip", compression_opts=4, shuffle=True)
        file.create_dataset("label", data=labels)


if __name__ == "__main__":
    main()
