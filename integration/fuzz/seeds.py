#!/usr/bin/env python3
"""Writes seed files for the fuzz targets: CORPUS/TARGET/….

    python3 seeds.py CORPUS --infeed target/debug/infeed [--jpegs FOLDER …]

Small files of `infeed synth` and `infeed prepare`, the golden files of the tests, files written here by hand, and, of
each `--jpegs` folder (photographs, what `../suites/fetch.py` collected), those of at most 24 KB. With Pillow there are
JPEGs and TIFFs of more kinds. Large seeds only slow a fuzzer down.
"""
import argparse, base64, gzip, hashlib, io, itertools, json, pathlib, struct, subprocess, tarfile, tempfile, zipfile, zlib

MOST = 24 << 10


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("--infeed", required=True, type=pathlib.Path)
    parser.add_argument("--jpegs", nargs="*", default=[], type=pathlib.Path)
    args = parser.parse_args()
    count = {}

    def seed(target, data, most=MOST):
        if len(data) <= most:
            folder = args.corpus / target
            folder.mkdir(parents=True, exist_ok=True)
            (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)
            count[target] = count.get(target, 0) + 1

    jpegs(seed, args.jpegs)
    here = pathlib.Path(__file__).resolve().parent
    for path in (here.parent / "golden/parquet").glob("*.parquet"):
        seed("parquet", path.read_bytes(), 1 << 20)
    for case in json.loads((here.parent / "golden/hdf5.json").read_text())["cases"]:
        seed("hdf5", zlib.decompress(base64.b64decode(case["file"])), 1 << 17)
    golden = lambda name: json.loads((here.parent / f"golden/{name}.json").read_text())
    for case in golden("dicom")["cases"]:
        for file in case["files"]:
            seed("dicom", zlib.decompress(base64.b64decode(file)))
    for case in golden("zarr")["cases"]:
        files = {name: zlib.decompress(base64.b64decode(file)) for name, file in case["objects"].items()}
        for about in files.keys() & {".zarray", "zarr.json"}:
            for name in sorted(files.keys() - {about})[:2]:
                seed("zarr", struct.pack("<H", len(files[about])) + files[about] + files[name])
    for picture in golden("jxl")["pictures"]:
        seed("jxl", bytes.fromhex(picture["file"]))
    words(seed)
    with tempfile.TemporaryDirectory() as place:
        synthetic(seed, args.infeed.resolve(), pathlib.Path(place))
    arrays(seed)
    volumes(seed)
    shards(seed)
    tables(seed)
    for target in sorted(count):
        print(f"{target}: {count[target]} seeds")


def jpeg(seed, data):
    seed("jpeg", data)
    # What is asked for stands before the file: windows of all, of the middle, of a corner, and of nothing.
    windows = [[0, 255, 0, 255], [64, 192, 64, 192], [0, 40, 0, 40], [200, 100, 9, 9]]
    seed("jpeg_windows", bytes(sum((window + [0, 255, 0, 254] for window in windows), [])) + data)


def jpegs(seed, folders):
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix.lower() in (".jpg", ".jpeg", ".jpe", ".jfif"):
                jpeg(seed, path.read_bytes())
    try:
        from PIL import Image
    except ImportError:
        return
    picture = Image.effect_mandelbrot((67, 45), (-2, -1, 1, 1), 60).convert("RGB")
    sizes = [(1, 1), (8, 8), (9, 17), (16, 16), (33, 20), (67, 45)]
    for size, mode, sampling, progressive, quality in itertools.product(
        sizes, ["L", "RGB", "CMYK"], [0, 1, 2], [False, True], [20, 90]
    ):
        out = io.BytesIO()
        resized = picture.resize(size).convert(mode)
        restarts = {"restart_marker_blocks": 2} if quality == 20 else {}
        resized.save(out, "JPEG", quality=quality, subsampling=sampling, progressive=progressive, **restarts)
        jpeg(seed, out.getvalue())
    clear = picture.copy()
    clear.putalpha(picture.convert("L").point(lambda value: value // 60 * 60))
    for image, size, lossless, quality in itertools.product([picture, clear], sizes, [False, True], [20, 90]):
        out = io.BytesIO()
        image.resize(size).save(out, "WEBP", lossless=lossless, quality=quality, method=quality // 20)
        seed("webp", out.getvalue())
    out = io.BytesIO()
    picture.save(out, "WEBP", save_all=True, append_images=[clear.convert("RGB").rotate(9)], duration=90)
    seed("webp", out.getvalue())
    for mode, compression in itertools.product(
        ["1", "L", "P", "RGB", "RGBA", "CMYK", "LAB", "I;16", "F"],
        [None, "tiff_lzw", "tiff_adobe_deflate", "packbits", "zstd", "jpeg"],
    ):
        if compression == "jpeg" and mode not in ("L", "RGB", "CMYK"):
            continue
        out = io.BytesIO()
        image = picture.convert("L") if mode in ("I;16", "F") else picture
        image.convert("I").convert(mode) if mode == "I;16" else image
        converted = image.convert("I").convert("I;16") if mode == "I;16" else image.convert(mode)
        converted.save(out, "TIFF", compression=compression)
        seed("tiff", out.getvalue())


def synthetic(seed, infeed, place):
    def run(*command):
        subprocess.run([infeed, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    run("synth", "tiff", str(place / "tiff"), "--count", "12")
    run("synth", "nrrd", str(place / "nrrd"), "--count", "2", "--side", "6")
    run("synth", "nrrd", str(place / "raw"), "--count", "1", "--side", "6", "--raw")
    for path in (place / "tiff").rglob("*.tif*"):
        seed("tiff", path.read_bytes(), 64 << 10)
    run("synth", "imagenet", str(place / "photos"), "--count", "6", "--classes", "2")
    run("prepare", str(place / "photos"), str(place / "shards"), "--shorter", "16")
    # Version, bytes of samples, these and the table: the target makes head and end.
    for path in (place / "shards").glob("*.infeed"):
        index = path.read_bytes()
        begins = int.from_bytes(index[-40:-32], "little")
        if begins - 16 < 256:
            seed("tar_manifest", bytes([0, begins - 16]) + index[16:-40])
    for path in (place / "shards").glob("*.tar"):
        seed("tar", path.read_bytes())
    run("inspect", str(place / "photos"), "--decode-index", str(place / "index"))
    seed("decode_index", (place / "index").read_bytes())
    run("inspect", str(place / "photos"), "--listing", str(place / "listing"))
    # Without its head and its place.
    seed("listing", (place / "listing").read_bytes()[-1 << 16 :].split(b"infeed manifest 2\n")[-1][40:])
    for path in list((place / "nrrd").rglob("*.nrrd")) + list((place / "raw").rglob("*.nrrd")):
        seed("nrrd", path.read_bytes())


def words(seed):
    box = {"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4], "iscrowd": 0, "segmentation": [[1, 1, 3, 1, 3, 3]]}
    rle = box | {"id": 2, "image_id": 2, "iscrowd": 1, "segmentation": {"size": [4, 5], "counts": [3, 5, 12]}}
    images = [{"id": n + 1, "file_name": f"{name}.jpg", "height": 4, "width": 5} for n, name in enumerate("ab")]
    seed("coco", json.dumps({"images": images, "annotations": [box, rle], "categories": [{"id": 3, "name": "cat"}]}).encode())
    thing = "<object><name>cat</name><difficult>0</difficult><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox></object>"
    outline = "<object><name>d&#111;g &amp; x</name><polygon><x1>1</x1><y1>2</y1><x2>3</x2><y2>4</y2></polygon></object>"
    text = f"<annotation><size><width>9</width><height>8</height></size>{thing}{outline}</annotation>"
    for encoding in ("utf-8", "utf-16", "gbk"):
        seed("voc", f'<?xml version="1.0" encoding="{encoding}"?>{text}'.encode(encoding))
    identity = {"format": "folder", "records": 9, "dataset": "0" * 32, "positions": 9, "order": "random, seed 42", "order_fingerprint": "1" * 32}
    seed("state", json.dumps({"version": 1, "epoch": 3, "position": 4, "seed": 42, "lanes": 1, "bad_samples": 0, "identity": identity}).encode())
    steps = ["random_resized_crop:176;horizontal_flip;trivial_augment_wide;normalize;random_erasing:0.1", "resize:256;center_crop:224", "imagenet-train", "none"]
    for step in steps:
        seed("transform", step.encode())
    seed("transform", json.dumps([{"op": "random_resized_crop", "size": 224}, {"op": "normalize", "mean": [0.5], "std": [0.2]}]).encode())
    seed("transform", json.dumps([{"name": "a", "count": 2, "transform": [{"op": "horizontal_flip"}]}]).encode())
    row = lambda width: b"\0" + bytes(range(width * 3))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = lambda bits, colour: chunk(b"IHDR", struct.pack(">2I5B", 3, 2, bits, colour, 0, 0, 0))
    for bits, colour, data in [(8, 2, row(3) * 2), (8, 0, b"\0abc\1def"), (1, 0, b"\0\xa0\2\x40"), (16, 6, bytes(50))]:
        seed("png", b"\x89PNG\r\n\x1a\n" + header(bits, colour) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))
    info = struct.pack("<IiiHHIIiiII", 40, 3, 2, 1, 24, 0, 24, 0, 0, 0, 0)
    seed("bmp", b"BM" + struct.pack("<IHHI", 78, 0, 0, 54) + info + bytes(24))
    # A picture of 1 x 1, without loss.
    seed("webp", base64.b64decode("UklGRiQAAABXRUJQVlA4TBgAAAAvAAAAAAfQ//73v/+BiOh/AAA="))


def arrays(seed):
    def npy(descr, shape, data, order=False):
        header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
        return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + data

    some = [
        npy("|u1", "(4, 3, 2)", bytes(24)),
        npy("<f4", "(5,)", struct.pack("<5f", *range(5))),
        npy("<u2", "(2, 3)", bytes(12), True),
        npy(">i2", "(2, 3)", bytes(12)),
        npy("<i8", "(3,)", bytes(24)),
    ]
    for one in some:
        seed("arrays", b"\0" + one)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as archive:
            archive.writestr("image.npy", some[0])
            archive.writestr("label.npy", npy("<i8", "(4,)", bytes(32)))
        seed("arrays", b"\1" + out.getvalue())
    header = json.dumps(
        {"image": {"dtype": "U8", "shape": [4, 6], "data_offsets": [0, 24]}, "y": {"dtype": "I64", "shape": [4], "data_offsets": [24, 56]}}
    ).encode()
    seed("arrays", b"\2" + struct.pack("<Q", len(header)) + header + bytes(56))


def volumes(seed):
    kinds = [("raw", bytes), ("gzip", gzip.compress), ("ascii", lambda b: b" ".join(b"%d" % v for v in b)), ("hex", lambda b: b.hex().encode())]
    for (encoding, pack), kind in itertools.product(kinds, ["uint8", "int16", "float"]):
        size = {"uint8": 1, "int16": 2, "float": 4}[kind]
        head = f"NRRD0004\ntype: {kind}\ndimension: 3\nsizes: 3 4 2\nencoding: {encoding}\nendian: little\n"
        extra = "spacings: 1 1 2.5\nline skip: 0\nbyte skip: 0\nkey:=value\n"
        seed("nrrd", (head + extra + "\n").encode() + pack(bytes(range(24)) * size))
    for endian, (code, bits) in itertools.product("<>", [(2, 8), (4, 16), (16, 32), (512, 16)]):
        header = bytearray(352)
        struct.pack_into(endian + "i", header, 0, 348)
        struct.pack_into(endian + "8h", header, 40, 3, 3, 4, 2, 1, 1, 1, 1)
        struct.pack_into(endian + "2h", header, 70, code, bits)
        struct.pack_into(endian + "8f", header, 76, 1, 1, 1, 2.5, 0, 0, 0, 0)
        struct.pack_into(endian + "f", header, 108, 352)
        header[344:348] = b"n+1\0"
        data = bytes(header) + bytes(24 * bits // 8)
        seed("nifti", data)
        seed("nifti", gzip.compress(data))


def shards(seed):
    def tar(members, kind=tarfile.USTAR_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=kind) as archive:
            for name, data in members:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return out.getvalue()

    members = [("a.jpg", b"\xff\xd8\xff\xd9"), ("a.cls", b"3"), ("b.jpg", b"\xff\xd8"), ("b.json", b'{"x": 1}'), ("b.txt", b"hello")]
    for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        seed("tar", tar(members, kind))
        seed("tar", tar([("x" * 60 + "/" + "y" * 60 + name, data) for name, data in members], kind))
    index = b"v1.2 5\n" + b"".join(b"jpg %d %d a%d.jpg cls %d 1 a%d.cls\n" % (512 + 2048 * n, 100, n, 1536 + 2048 * n, n) for n in range(2))
    seed("wds2idx", b"v1.2 2\n" + index[7:])
    seed("wds2idx", b"v1.1 1\njpg 512 100\n")
    samples = [b"".join((struct.pack("<2I", 1, 4), b"\1", b"data")), b"".join((struct.pack("<2I", 1, 3), b"\2", b"jpg"))]
    offsets = [4 * (len(samples) + 2)]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    shard = struct.pack(f"<{len(offsets) + 1}I", len(samples), *offsets) + b"".join(samples)
    for encodings in (["int", "bytes"], ["uint8", "jpeg"], ["int", "str"]):
        about = {
            "version": 2,
            "shards": [
                {
                    "column_encodings": encodings, "column_names": ["y", "x"], "column_sizes": [8, None], "compression": None,
                    "format": "mds", "hashes": [], "raw_data": {"basename": "a.mds", "bytes": len(shard), "hashes": {}},
                    "samples": len(samples), "size_limit": None, "version": 2, "zip_data": None,
                }
            ],
        }
        text = json.dumps(about).encode()
        seed("mds", struct.pack("<H", len(text)) + text + shard)

    def crc(data):
        value = 0xFFFFFFFF
        for byte in data:
            value ^= byte
            for _ in range(8):
                value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        value ^= 0xFFFFFFFF
        return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF

    def record(data):
        length = struct.pack("<Q", len(data))
        return length + struct.pack("<I", crc(length)) + data + struct.pack("<I", crc(data))

    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    feature = lambda name, kind, data: field(1, field(1, name) + field(2, field(kind, data)))
    example = field(1, feature(b"image", 1, field(1, b"\xff\xd8\xff\xd9")) + feature(b"label", 3, b"\x0a\x01\x07"))
    seed("tfrecord", record(example) * 3)
    seed("tfrecord", record(example)[:-1])
    # As the content of a record.
    seed("tfrecord", example)
    line = {"text": "\u00e9", "tokens": [1, 2], "box": [[0.5, 1]], "label": 3, "ok": True, "meta": {"a": None}}
    seed("jsonl", json.dumps(line).encode())
    seed("jsonl", "\ufeff{}\r\n\n{}\n".format(json.dumps(line), json.dumps({**line, "tokens": []})).encode())


def tables(seed):
    rows = "file_name,label,text,n\na.png,cat,\"x, y\",1\nb.png,dog,z,2.5\n"
    lines = '{"file_name": "a.png", "label": 1, "t": [1]}\n{"file_name": "b.png", "label": 2, "t": null}\n'
    pairs = [{"file": "a.png", "label": "cat"}, ["b.png", 7]]
    seed("labels", b"\0file;label\na.png;1\nb.png;2.0\n")
    seed("labels", b"\1" + json.dumps(pairs).encode())
    seed("labels", b"\1" + json.dumps({"a.png": 3, "b.png": 4}).encode())
    seed("labels", b"\1" + json.dumps({"labels": [["a.png", 3], ["b.png", 4]]}).encode())
    seed("labels", b"\4a.png 3\n# of Caffe\n/x/b.png  4\n")
    seed("labels", b"\5" + b"\n".join(json.dumps({"file": name, "class": "c"}).encode() for name in ("a.png", "b.png")))
    seed("labels", b"\2" + rows.encode())
    seed("labels", b"\3" + lines.encode())
    seed("cifar", b"\0" + bytes(3073))
    seed("cifar", b"\1" + bytes(3074))
    for encoding, pack, skip in itertools.product(["raw", "gzip"], [bytes, gzip.compress], [0, -1]):
        head = f"NRRD0004\ntype: uint8\ndimension: 3\nsizes: 3 4 2\nencoding: {encoding}\nbyte skip: {skip}\ndata file: a.raw\n".encode()
        seed("nhdr", struct.pack("<H", len(head)) + head + pack(bytes(24)))


if __name__ == "__main__":
    main()

