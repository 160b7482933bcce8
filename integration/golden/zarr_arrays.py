"""Small Zarr arrays and what zarr-python reads of them: python3 integration/golden/zarr_arrays.py > integration/golden/zarr.json

Needs zarr 3 (which brings numcodecs), numpy and xarray; a script called zarr.py would be imported for it. Both versions of the format; each compressor, Blosc with each of its codecs and
shuffles; orders of axes and of bytes; edges, chunks that are not there, shards, groups; packed numbers of xarray. Bytes are deflated and in base64:
those of objects, and of values in C order, little-endian.
"""

import asyncio
import base64
import importlib.metadata
import json
import pathlib
import sys
import tempfile
import zlib

import numcodecs
import numpy as np
import xarray
import zarr
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.codecs import numcodecs as named
from zarr.core.buffer import default_buffer_prototype

LITTLE = BytesCodec()


def numbers(shape, dtype):
    """Values that compress, though not to nothing; whole numbers, which every type holds."""
    n = np.arange(np.prod(shape, dtype=int))
    values = (n // 3 + (n * 2654435761 % 7)) % 120
    if np.dtype(dtype) == bool:
        return (values % 3 == 0).reshape(shape)
    return values.astype(dtype).reshape(shape)


def packed(bytes):
    return base64.b64encode(zlib.compress(bytes, 9)).decode()


def packed_values(array):
    return packed(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes())


def objects_of(store):
    async def all():
        names = [name async for name in store.list()]
        return {name: (await store.get(name, default_buffer_prototype())).to_bytes() for name in sorted(names)}

    # Attributes and consolidated metadata tell nothing of values.
    found = asyncio.run(all())
    return {name: bytes for name, bytes in found.items() if not name.endswith((".zattrs", ".zmetadata"))}


def case(name, store, fields):
    """What zarr reads of the arrays at these paths, each a field."""
    values = {field: zarr.open_array(store, path=path, mode="r")[...] for field, path in fields.items()}
    return case_of(name, objects_of(store), values)


def case_of(name, objects, fields):
    arrays = {
        field: {"dtype": v.dtype.newbyteorder("=").name, "shape": list(v.shape), "values": packed_values(v)}
        for field, v in fields.items()
    }
    return {"name": name, "objects": objects, "arrays": arrays}


def v2(name, dtype="<f4", shape=(7, 5, 6), chunks=(3, 5, 6), data=None, write=True, **how):
    store = zarr.storage.MemoryStore()
    how = {"compressors": None, "filters": None, "fill_value": 0, **how}
    array = zarr.create_array(store, shape=shape, chunks=chunks, dtype=dtype, zarr_format=2, **how)
    if write:
        array[...] = numbers(shape, dtype) if data is None else data
    return store, array


def v3(name, dtype="float32", shape=(7, 5, 6), chunks=(3, 5, 6), codecs=(LITTLE,), data=None, write=True, **how):
    store = zarr.storage.MemoryStore()
    how = {"fill_value": 0, **how}
    array = zarr.create(
        store=store, shape=shape, chunks=chunks, dtype=dtype, zarr_format=3, codecs=list(codecs), **how
    )
    if write:
        array[...] = numbers(shape, dtype) if data is None else data
    return store, array


def of_xarray():
    """Packed numbers as xarray reads them, beside texts and single numbers; and a group for each record."""
    values = 0.5 + np.arange(12, dtype="f8").reshape(4, 3)
    values[1, 2] = np.nan
    data = xarray.Dataset(
        {
            "packed": (("t", "s"), values),
            "masked": (("t", "s"), values.astype("f4")),
            "counts": (("t",), np.arange(4, dtype="u1")),
            "names": (("t",), np.array(["a", "b", "c", "d"])),
        },
        coords={"spatial_ref": 0},
    )
    encoding = {
        "packed": {"scale_factor": 0.5, "add_offset": -3.0, "_FillValue": np.int16(-9999), "dtype": "i2"},
        "masked": {"_FillValue": np.float32(-5)},
    }
    for version in [2, 3]:
        with tempfile.TemporaryDirectory() as folder:
            data.to_zarr(folder, zarr_format=version, consolidated=False, encoding=encoding)
            files = sorted(file for file in pathlib.Path(folder).rglob("*") if file.is_file())
            objects = {str(file.relative_to(folder)): file.read_bytes() for file in files}
            read = xarray.open_zarr(folder, consolidated=False)
            yield case_of(f"v{version} xarray", objects, {n: read[n].values for n in ["packed", "masked", "counts"]})
        store = zarr.storage.MemoryStore()
        root = zarr.create_group(store, zarr_format=version)
        for i in range(11):
            group = root.create_group(f"{i}")
            image = group.create_array("image", shape=(6, 4), chunks=(4, 3), dtype="uint16", fill_value=0)
            image[...] = numbers(image.shape, "uint16") + i
            label = group.create_array("label", shape=(), dtype="int64", fill_value=0)
            label[...] = i * 7 % 5
        image = np.stack([numbers((6, 4), "uint16") + i for i in range(11)])
        label = np.array([i * 7 % 5 for i in range(11)])
        yield case_of(f"v{version} group of each record", objects_of(store), {"image": image, "label": label})


def main():
    cases = []

    def old(name, **how):
        cases.append(case(f"v2 {name}", v2(name, **how)[0], {"array": ""}))

    def new(name, **how):
        cases.append(case(f"v3 {name}", v3(name, **how)[0], {"array": ""}))

    for dtype in ["|b1", "|u1", "|i1", "<u2", ">u2", "<i2", ">i2", "<u4", "<i4", ">i4", "<u8", "<i8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]:
        old(f"type {dtype}", dtype=dtype, shape=(5, 3), chunks=(2, 3))
    for name, compressor in {
        "zlib": numcodecs.Zlib(5),
        "gzip": numcodecs.GZip(5),
        "zstd": numcodecs.Zstd(3),
        "lz4": numcodecs.LZ4(),
        "bz2": numcodecs.BZ2(5),
    }.items():
        old(f"compressor {name}", compressors=compressor)
    old("shuffle and zlib", compressors=numcodecs.Zlib(5), filters=[numcodecs.Shuffle(elementsize=4)])
    old("order F", order="F")
    old("order F, zstd, inner chunks, big", dtype=">f4", chunks=(3, 2, 4), order="F", compressors=numcodecs.Zstd(3))
    old("inner chunks", chunks=(3, 2, 4))
    old("inner chunks of one row, lz4", chunks=(1, 2, 4), compressors=numcodecs.LZ4())
    old("one row, plain", chunks=(1, 5, 6))
    old("one row, big", dtype=">i2", chunks=(1, 5, 6))
    old("one row, inner, order F", chunks=(1, 3, 4), order="F")
    old("one axis", dtype="<i8", shape=(1000,), chunks=(256,), compressors=numcodecs.Zstd(1))
    old("separator /", chunks=(3, 2, 4), chunk_key_encoding={"name": "v2", "separator": "/"})
    old("eleven chunks", dtype="<i4", shape=(23, 2), chunks=(2, 2))
    for fill in [0, 7, "NaN", "Infinity"]:
        value = fill if isinstance(fill, int) else float(fill.lower().replace("infinity", "inf"))
        store, array = v2("", chunks=(2, 2, 4), fill_value=value, write=False, compressors=numcodecs.Zstd(1))
        array[2:5, 1:4, :3] = 5
        cases.append(case(f"v2 missing chunks, fill {fill}", store, {"array": ""}))
    old("nothing written", fill_value=3, write=False)

    blosc_data = {size: numbers((12, 24, 7), f"<i{size}") for size in [1, 2, 4, 8]}
    for codec in ["blosclz", "lz4", "lz4hc", "zlib", "zstd", "snappy"]:
        if codec not in numcodecs.blosc.list_compressors():
            print(f"no {codec} in this Blosc", file=sys.stderr)
            continue
        for shuffle, size, blocksize in [(0, 4, 0), (1, 2, 0), (1, 8, 1024), (2, 4, 512), (2, 1, 0)]:
            blosc = numcodecs.Blosc(cname=codec, clevel=5, shuffle=shuffle, blocksize=blocksize)
            old(f"blosc {codec}, shuffle {shuffle}, {size} bytes, blocks of {blocksize}", dtype=f"<i{size}",
                shape=(12, 24, 7), chunks=(5, 24, 7), data=blosc_data[size], compressors=blosc)
    old("blosc of bits, no multiple of 8", dtype="<i4", shape=(5, 37), chunks=(1, 37), compressors=numcodecs.Blosc("lz4", 5, 2))
    random = np.random.default_rng(1)
    noise = random.integers(0, 256, 900, np.uint8)
    old("blosc of noise", dtype="|u1", shape=(3, 300), chunks=(2, 300), data=noise.reshape(3, 300),
        compressors=numcodecs.Blosc("lz4", 5, 0))
    # Copies from afar, and long ones.
    rough = random.integers(0, 12, 9000, np.uint8)
    far = np.concatenate([rough, rough, np.zeros(5000, np.uint8), rough[:1000]])
    for codec in ["blosclz", "lz4"]:
        old(f"blosc {codec} from afar", dtype="|u1", shape=(2, 12000), chunks=(2, 12000), data=far.reshape(2, 12000),
            compressors=numcodecs.Blosc(codec, 9, 0, 1 << 16))

    for dtype in ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"]:
        new(f"type {dtype}", dtype=dtype, shape=(5, 3), chunks=(2, 3))
    new("big endian", codecs=[BytesCodec(endian="big")])
    new("big endian, one row", chunks=(1, 5, 6), codecs=[BytesCodec(endian="big")])
    new("gzip", codecs=[LITTLE, GzipCodec()])
    new("zstd", codecs=[LITTLE, ZstdCodec(level=3, checksum=True)])
    new("blosc", codecs=[LITTLE, BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle", typesize=4)])
    new("crc32c", codecs=[LITTLE, Crc32cCodec()])
    new("zstd and crc32c", codecs=[LITTLE, ZstdCodec(), Crc32cCodec()])
    new("crc32c and zstd", codecs=[LITTLE, Crc32cCodec(), ZstdCodec()])
    new("transpose", codecs=[TransposeCodec(order=(2, 0, 1)), LITTLE, ZstdCodec()])
    new("transpose twice, inner chunks", chunks=(3, 2, 4), codecs=[TransposeCodec(order=(2, 0, 1)), TransposeCodec(order=(0, 2, 1)), LITTLE])
    new("transpose of inner axes, one row", chunks=(1, 5, 6), codecs=[TransposeCodec(order=(0, 2, 1)), LITTLE])
    new("inner chunks", chunks=(2, 2, 4), codecs=[LITTLE, ZstdCodec()])
    new("keys of v2", chunks=(3, 2, 4), chunk_key_encoding=("v2", "."))
    new("keys with dots", chunks=(3, 2, 4), chunk_key_encoding=("default", "."))
    new("numcodecs shuffle and zlib", codecs=[LITTLE, named.Shuffle(elementsize=4), named.Zlib(level=5)])
    new("numcodecs lz4", codecs=[LITTLE, named.LZ4()])
    new("numcodecs bz2", codecs=[LITTLE, named.BZ2(level=5)])
    for location in ["start", "end"]:
        for name, chunk, codecs in [
            ("zstd", (2, 5, 3), [LITTLE, ZstdCodec()]),
            ("plain, one row", (1, 5, 6), [LITTLE]),
            ("blosc, transposed, summed", (2, 3, 2), [TransposeCodec(order=(1, 2, 0)), BytesCodec(endian="big"), BloscCodec(typesize=4), Crc32cCodec()]),
        ]:
            shard = tuple(2 * n for n in chunk)
            sharding = ShardingCodec(chunk_shape=chunk, codecs=codecs, index_location=location)
            new(f"shards of {name}, index at the {location}", shape=(7, 10, 9), chunks=shard, codecs=[sharding])
    sharding = ShardingCodec(chunk_shape=(1, 2), codecs=[LITTLE, ZstdCodec()], index_codecs=[BytesCodec(endian="big")])
    store, array = v3("", shape=(9, 6), chunks=(4, 4), codecs=[sharding], fill_value=float("nan"), write=False)
    array[1:6, 1:3] = 4
    cases.append(case("v3 shards with holes, index big endian without a sum", store, {"array": ""}))

    # Not-a-number by its bits, and a type that numpy lacks: the metadata are written over.
    def patched(name, how, patch, dtype=None):
        store, array = v3("", **how)
        array[2:4] = numbers((2, 3), array.dtype)
        found = case(f"v3 {name}", store, {"array": ""})
        meta = {**json.loads(found["objects"]["zarr.json"]), **patch}
        found["objects"]["zarr.json"] = json.dumps(meta).encode()
        if dtype:
            found["arrays"]["array"]["dtype"] = dtype
        cases.append(found)

    bits = {"dtype": "uint32", "shape": (7, 3), "chunks": (2, 3), "write": False, "fill_value": 0x7FC00001}
    patched("fill by bits", bits, {"data_type": "float32", "fill_value": "0x7fc00001"}, "float32")
    bits = {"dtype": "uint16", "shape": (7, 3), "chunks": (2, 3), "write": False, "fill_value": 0x7FC0}
    patched("bfloat16", bits, {"data_type": "bfloat16", "fill_value": "NaN"}, "bfloat16")

    for version in [2, 3]:
        store = zarr.storage.MemoryStore()
        root = zarr.create_group(store, zarr_format=version)
        image = root.create_array("image", shape=(20, 8, 6, 3), chunks=(4, 8, 6, 3), dtype="uint8", fill_value=0)
        image[...] = numbers(image.shape, "uint8")
        label = root.create_array("label", shape=(20,), chunks=(16,), dtype="int64", fill_value=0)
        label[...] = np.arange(20) * 3 % 7
        extra = root.create_group("extra").create_array("weight", shape=(20, 2), chunks=(1, 2), dtype="float32", fill_value=0)
        extra[...] = numbers(extra.shape, "float32")
        cases.append(case(f"v{version} group", store, {"extra/weight": "extra/weight", "image": "image", "label": "label"}))

    cases.extend(of_xarray())

    for found in cases:
        found["objects"] = {name: packed(bytes) for name, bytes in found["objects"].items()}
    made = {name: importlib.metadata.version(name) for name in ["zarr", "numcodecs", "numpy", "xarray"]}
    print(json.dumps({"made_by": made, "cases": cases}, indent=0))


if __name__ == "__main__":
    main()
