"""The data that scale.py opens: one shard of tiny records, and hard links of it, so that millions of them take few bytes.

`python scale_forms.py FORM FOLDER SHARDS`, with the interpreter that has the form's library.
"""

import gzip
import json
import os
import random
import struct
import sys
import tarfile
from pathlib import Path

# Records of a shard, as of a folder of the tree.
SHARD = 1000
# Nobody decodes it: what begins as a JPEG and is as long as a tiny one.
PICTURE = b"\xff\xd8\xff\xe0" + bytes(540)


def tar(folder, shards):
    def member(name, data):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)

    records = (member(f"{n:09}.jpg", PICTURE) + member(f"{n:09}.cls", b"%d" % (n % 10)) for n in range(SHARD))
    (folder / "000000.tar").write_bytes(b"".join(records) + bytes(1024))
    return [f"{n:06}.tar" for n in range(shards)]


def mds(folder, shards):
    # The size of what has no fixed one, then the columns by their names.
    sample = struct.pack("<I", len(PICTURE)) + PICTURE + struct.pack("<q", 7)
    config = json.dumps({"version": 2}).encode()
    start = 8 + 4 * SHARD + len(config)
    offsets = struct.pack(f"<{SHARD + 1}I", *(start + n * len(sample) for n in range(SHARD + 1)))
    shard = struct.pack("<I", SHARD) + offsets + config + sample * SHARD
    (folder / "shard.00000.mds").write_bytes(shard)
    names = [f"shard.{n:05}.mds" for n in range(shards)]
    told = dict(format="mds", version=2, samples=SHARD, compression=None, hashes=[], size_limit=1 << 26, zip_data=None)
    told.update(column_names=["image", "label"], column_encodings=["bytes", "int"], column_sizes=[None, 8])
    shards = [{**told, "raw_data": {"basename": name, "bytes": len(shard), "hashes": {}}} for name in names]
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return names


def parquet(folder, shards):
    import pyarrow
    import pyarrow.parquet

    image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    columns = {"image": pyarrow.array([{"bytes": PICTURE, "path": "a.jpg"}] * SHARD, image), "label": [7] * SHARD}
    names = [f"train-{n:05}-of-{shards:05}.parquet" for n in range(shards)]
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / names[0], row_group_size=100, use_dictionary=False)
    return names


def tfrecord_gz(folder, shards):
    def masked(data):
        crc = 0xFFFFFFFF
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        crc ^= 0xFFFFFFFF
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    def field(number, data):
        length = bytes([len(data) & 127 | 128, len(data) >> 7]) if len(data) > 127 else bytes([len(data)])
        return bytes([number << 3 | 2]) + length + data

    # Noise, because pictures cannot be compressed either.
    draws = random.Random(0)
    examples = (field(1, field(1, field(1, b"noise") + field(2, field(1, field(1, draws.randbytes(540)))))) for _ in range(SHARD))
    lengths = ((struct.pack("<Q", len(example)), example) for example in examples)
    records = (length + masked(length) + example + masked(example) for length, example in lengths)
    names = [f"train-{n:05}-of-{shards:05}.tfrecord.gz" for n in range(shards)]
    (folder / names[0]).write_bytes(gzip.compress(b"".join(records)))
    return names


def folder_tree(folder, shards):
    # A file for each class: file systems bound how many links one may have.
    for n in range(shards):
        inside = folder / f"class{n:05}"
        inside.mkdir()
        (inside / "000.jpg").write_bytes(PICTURE)
        for m in range(1, SHARD):
            os.link(inside / "000.jpg", inside / f"{m:03}.jpg")
    return []


def flat(folder, shards):
    for n in range(shards):
        first = folder / f"{n * SHARD:08}.jpg"
        first.write_bytes(PICTURE)
        for m in range(1, SHARD):
            os.link(first, folder / f"{n * SHARD + m:08}.jpg")
    return []


def litdata_chunks(folder, shards):
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(folder), chunk_size=SHARD)
    for n in range(SHARD):
        writer[n] = {"image": PICTURE, "label": n % 10}
    writer.done()
    writer.merge()
    index = json.loads((folder / "index.json").read_text())
    (chunk,) = index["chunks"]
    names = [chunk["filename"], *(f"chunk-1-{n}.bin" for n in range(1, shards))]
    index["chunks"] = [{**chunk, "filename": name} for name in names]
    (folder / "index.json").write_text(json.dumps(index))
    return names


def array_record(folder, shards):
    from array_record.python.array_record_module import ArrayRecordWriter

    names = [f"train-{n:05}-of-{shards:05}.array_record" for n in range(shards)]
    writer = ArrayRecordWriter(str(folder / names[0]), "group_size:1")
    for _ in range(SHARD):
        writer.write(PICTURE)
    writer.close()
    return names


def coco(folder, shards):
    # Seven objects an image, with outlines of twenty corners. The images can be decoded: boxes need their sizes.
    from PIL import Image

    (folder / "train2017").mkdir()
    (folder / "annotations").mkdir()
    outline = [[round(1 + 7 * x % 6.9, 2) for x in range(40)]]
    images, annotations = [], []
    for n in range(shards * SHARD):
        name = folder / "train2017" / f"{n:012}.jpg"
        if n % SHARD == 0:
            Image.new("RGB", (16, 16)).save(name)
            first = name
        else:
            os.link(first, name)
        images.append({"id": n, "file_name": name.name, "height": 16, "width": 16})
        annotations += (
            {"id": 7 * n + m, "image_id": n, "category_id": 1 + m, "bbox": [m, 1.25, 5.5, 6.75], "iscrowd": 0, "area": 9, "segmentation": outline}
            for m in range(7)
        )
    told = {"images": images, "annotations": annotations, "categories": [{"id": 1 + m, "name": f"class {m}"} for m in range(7)]}
    (folder / "annotations" / "instances_train2017.json").write_text(json.dumps(told))
    return []


FORMS = {
    "coco": coco,
    "tar": tar,
    "mds": mds,
    "parquet": parquet,
    "tfrecord.gz": tfrecord_gz,
    "flat": flat,
    "folder": folder_tree,
    "litdata": litdata_chunks,
    "array_record": array_record,
}

if __name__ == "__main__":
    into = Path(sys.argv[2])
    first, *others = FORMS[sys.argv[1]](into, int(sys.argv[3])) or [None]
    for name in others:
        os.link(into / first, into / name)
