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
    # Without its head: the target makes that.
    for path in (place / "shards").glob("*.infeed"):
        seed("tar_manifest", path.read_bytes()[40:])
    for path in (place / "shards").glob("*.tar"):
        seed("tar", path.read_bytes())
    for path in list((place / "nrrd").rglob("*.nrrd")) + list((place / "raw").rglob("*.nrrd")):
        seed("nrrd", path.read_bytes())


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

