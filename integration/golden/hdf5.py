"""Small HDF5 files and what h5py reads of them: python3 integration/golden/hdf5.py > integration/golden/hdf5.json

Needs h5py, hdf5plugin, numpy, xarray, netCDF4 and h5netcdf. The oldest version of the format and the newest; each layout and each index of chunks;
filters; orders of bytes, booleans, half precision; groups, small and large; chunks that are not there; a block of the user's; records that are a group or a dataset each; packed
numbers of netCDF.
Bytes are deflated and in base64: those of files, and of values in C order, little-endian.
"""

import base64
import ctypes
import importlib.metadata
import io
import json
import pathlib
import sys
import tempfile
import zlib

import h5py
import hdf5plugin
import numpy as np
import xarray


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


def case(name, fill, columns=None, refused=None, values=None, **how):
    """One file. `columns` are those that are read, all if there are none; `refused` is what is said of them. `values` are
    the fields where they are not the datasets as they lie."""
    file = io.BytesIO()
    if isinstance(fill, bytes):
        file.write(fill)
    else:
        with h5py.File(file, "w", **how) as h5:
            fill(h5)
    if values is not None:
        fields = [
            {"name": n, "dtype": str(v.dtype.newbyteorder("=")), "shape": v.shape, "values": packed_values(v)}
            for n, v in sorted(values.items())
        ]
        whole = file.getvalue()
        return {"name": name, "columns": columns, "refused": refused, "size": len(whole), "file": packed(whole), "fields": fields}
    found = {}

    def visit(path, node):
        if isinstance(node, h5py.Dataset) and node.shape and node.dtype.kind in "biuf" and not node.is_virtual:
            found[path] = node

    with h5py.File(file, "r") as h5:
        h5.visititems(visit)
        names = columns or sorted(found)
        if refused is None:
            fields = [
                {
                    "name": n,
                    "dtype": str(found[n].dtype.newbyteorder("=")),
                    "shape": found[n].shape,
                    "values": packed_values(found[n][...]),
                }
                for n in names
            ]
        else:
            fields = []
    whole = file.getvalue()
    return {"name": name, "columns": columns, "refused": refused, "size": len(whole), "file": packed(whole), "fields": fields}


BOUNDS = {"oldest": ("earliest", "v108"), "newest": ("latest", "latest")}


def types(h5):
    for dtype in ["u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8", "?"]:
        h5[f"little_{np.dtype(dtype).name}"] = numbers((5, 3), dtype)
    for dtype in [">u2", ">i4", ">i8", ">f2", ">f4", ">f8"]:
        h5[f"big_{np.dtype(dtype).name}"] = numbers((5, 3), dtype)
    h5["named_type"] = np.dtype("<i4")
    h5.create_dataset("of_named", data=numbers((5, 2), "i4"), dtype=h5["named_type"])
    enum = h5py.enum_dtype({"CAT": 3, "DOG": 4}, basetype="i2")
    h5.create_dataset("enum", data=np.array([3, 4, 4, 3, 3], "i2"), dtype=enum)


def compact(h5):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    values = numbers((7, 5), ">i2")
    space = h5py.h5s.create_simple(values.shape)
    dataset = h5py.h5d.create(h5.id, b"compact", h5py.h5t.STD_I16BE, space, plist)
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values.astype("<i2"))
    h5["label"] = numbers((7,), "i8")
    h5.create_dataset("nothing_written", (7, 2), "f4", fillvalue=1.5)


def indexes(h5):
    """Each index of chunks, where the version of the format has it."""
    values = numbers((23, 10, 6), "f4")
    chunk = (4, 4, 6)

    def make(name, **how):
        h5.create_dataset(name, data=values, chunks=chunk, **how)
        h5.create_dataset(f"{name}_packed", data=values, chunks=chunk, compression="gzip", shuffle=True, **how)

    make("fixed")
    make("fixed_more", maxshape=(64, 32, 6))
    make("extensible", maxshape=(None, 10, 6))
    make("extensible_inner", maxshape=(40, None, 6))
    make("tree", maxshape=(None, None, 6))
    for name, how in [("single", {}), ("single_packed", {"compression": "gzip"})]:
        h5.create_dataset(name, data=values, chunks=values.shape, **how)
    # All chunks from the beginning on, without a filter.
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(chunk)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    space = h5py.h5s.create_simple(values.shape)
    dataset = h5py.h5d.create(h5.id, b"implicit", h5py.h5t.IEEE_F32LE, space, plist)
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values)


def filters(h5):
    values = numbers((30, 11), "i4")
    for name, how in {
        "gzip": {"compression": "gzip"},
        "gzip_shuffle_sum": {"compression": "gzip", "shuffle": True, "fletcher32": True},
        "sum": {"fletcher32": True},
        "shuffle": {"shuffle": True},
        "lzf": {"compression": "lzf"},
        "lzf_shuffle": {"compression": "lzf", "shuffle": True},
        "zstd": hdf5plugin.Zstd(),
        "lz4": hdf5plugin.LZ4(nbytes=128),
        "blosc": hdf5plugin.Blosc(cname="lz4", shuffle=1),
        "bzip2": hdf5plugin.BZip2(),
    }.items():
        h5.create_dataset(name, data=values, chunks=(7, 11), **how)
    # Odd lengths, and what does not get smaller, which LZF leaves as it is.
    noise = np.random.default_rng(1).integers(0, 256, (30, 13), dtype="u1")
    h5.create_dataset("noise_lzf", data=noise, chunks=(7, 13), compression="lzf", fletcher32=True)
    # A chunk that went without one of its filters.
    some = h5.create_dataset("without", data=values, chunks=(10, 11), compression="gzip", shuffle=True)
    some.id.write_direct_chunk((10, 0), np.ascontiguousarray(values[10:20]).tobytes(), filter_mask=0b11)


def edges(h5):
    """Chunks that the array's end cuts went without filters."""
    # h5py has no call for it; the library that it brings does.
    library = next(pathlib.Path(h5py.__file__).parent.parent.glob("h5py.libs/libhdf5-*"))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4, 4))
    plist.set_deflate(4)
    assert ctypes.CDLL(str(library)).H5Pset_chunk_opts(ctypes.c_int64(plist.id), ctypes.c_uint(2)) >= 0
    values = numbers((10, 10), "i4")
    dataset = h5py.h5d.create(h5.id, b"plain_edges", h5py.h5t.STD_I32LE, h5py.h5s.create_simple(values.shape), plist)
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values)


def large(h5):
    """In one piece, too long to be read as a whole."""
    h5["image"] = numbers((400, 32, 32, 3), "u1")
    h5["label"] = numbers((400,), ">i8") % 10


def missing(h5):
    for name, how in {
        "zeros": {},
        "sevens": {"fillvalue": 7, "compression": "gzip"},
        "grows": {"fillvalue": -1, "maxshape": (None, 6)},
        "tree": {"fillvalue": -1, "maxshape": (None, None), "compression": "gzip"},
    }.items():
        made = h5.create_dataset(name, (40, 6), ">i4", chunks=(4, 3), **how)
        made[5:9] = numbers((4, 6), "i4")
        made[33, 4] = 99
    h5.create_dataset("nothing", (40, 2), "f8", chunks=(4, 2), fillvalue=2.5)
    shrunk = h5.create_dataset("shrunk", data=numbers((60, 6), "i4"), chunks=(8, 6), maxshape=(None, 6))
    shrunk.resize((40, 6))


def groups(h5):
    inner = h5.create_group("train/pixels")
    inner["image"] = numbers((6, 4, 4), "u1")
    h5["train/label"] = numbers((6,), "i8")
    h5["train/again"] = h5["train"]
    h5["train/soft"] = h5py.SoftLink("/train/label")
    h5["train/away"] = h5py.ExternalLink("other.h5", "/x")
    h5["train/names"] = np.array([b"a", b"b", b"c", b"d", b"e", b"f"])
    h5["train/texts"] = ["a", "b", "c", "d", "e", "ü"]
    h5["scale"] = 3.0
    h5.attrs["about"] = "x" * 200
    h5["train/label"].attrs["classes"] = ["cat", "dog"]
    h5["train/grüße"] = numbers((6, 2), "f4")


def many(h5):
    """So many links that they are in a heap, and messages of a header in parts."""
    for i in range(300):
        h5[f"group_{i:03}/of_a_rather_long_name_{i:03}"] = numbers((2,), "u1") if i % 60 == 0 else h5py.Empty("u1")
    for i in range(20):
        h5.attrs[f"attribute_{i}"] = "y" * 100
        h5["group_000/of_a_rather_long_name_000"].attrs[f"attribute_{i}"] = "y" * 100


def sparse(h5):
    """Chunks far away: blocks of indexes in pages, trees of several levels."""
    grows = h5.create_dataset("grows", (200_000,), "u1", chunks=(1,), maxshape=(None,), fillvalue=3)
    for at in [0, 3, 4, 5, 17, 40, 300, 5_000, 70_000, 131_073, 150_000, 199_999]:
        grows[at] = at % 251
    fixed = h5.create_dataset("fixed", (200_000,), "u1", chunks=(25,), fillvalue=4, compression="gzip")
    for at in [7, 60_000, 199_980]:
        fixed[at] = at % 251
    tree = h5.create_dataset("tree", (200_000, 1), "u1", chunks=(200, 1), maxshape=(None, None))
    tree[...] = numbers((200_000, 1), "u1") // 60


def uneven(h5):
    h5["x_train"] = numbers((12, 2), "f4")
    h5["x_test"] = numbers((5, 2), "f4")
    h5["y_train"] = numbers((12,), "i8")


def tables(h5):
    h5["table"] = np.zeros(4, dtype=[("a", "i4"), ("b", "f4")])
    h5["x"] = numbers((4, 2), "f4")


def scaled(h5):
    h5.create_dataset("scaled", data=numbers((8, 4), "i4"), chunks=(4, 4), scaleoffset=8)


def each_group(h5):
    """A group for each record, whose numbers are not padded; labels are single numbers."""
    for i in range(12):
        h5.create_dataset(f"{i}/image", data=numbers((6, 4), "u2") + i, chunks=(4, 3), compression="gzip")
        h5[f"{i}/label"] = np.int64(i * 7 % 5)


def each_dataset(h5):
    """A dataset for each record, beside the labels of all."""
    for i in range(5):
        h5[f"images/img_{i:04}"] = numbers((3, 2), ">i4") + i
    h5["labels"] = numbers((5,), "u1")


def series():
    image = np.stack([numbers((6, 4), "u2") + i for i in range(12)])
    yield case("each_group", each_group, values={"image": image, "label": np.array([i * 7 % 5 for i in range(12)])})
    image = np.stack([numbers((3, 2), "i4") + i for i in range(5)])
    yield case("each_dataset", each_dataset, values={"images/img": image, "labels": numbers((5,), "u1")})


def netcdf():
    """Packed numbers, as xarray reads them; a dimension that has no values; more attributes than a header holds."""
    values = 0.5 + np.arange(12, dtype="f8").reshape(4, 3)
    values[1, 2] = np.nan
    few = {"scale_factor": np.float32(0.5), "add_offset": np.float32(-3), "_FillValue": np.int16(-9999), "dtype": "i2"}
    wide = {"scale_factor": 0.25, "add_offset": 10.0, "_FillValue": np.int32(-1), "dtype": "i4"}
    data = xarray.Dataset(
        {
            "few": (("time", "space"), values, {f"attribute_{i}": "y" * 40 for i in range(12)}),
            "wide": (("time", "space"), values, {}),
            "scaled": (("time", "space"), np.arange(12.0).reshape(4, 3), {}),
            "masked": (("time", "space"), values.astype("f4"), {}),
            "counts": (("time",), np.arange(4, dtype="u1"), {}),
        }
    )
    encoding = {
        "few": few,
        "wide": wide,
        "scaled": {"scale_factor": np.float32(2), "dtype": "u1", "_FillValue": None},
        "masked": {"_FillValue": np.float32(-5)},
    }
    for engine in ["netcdf4", "h5netcdf"]:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "x.nc")
            data.to_netcdf(path, engine=engine, encoding=encoding)
            with xarray.open_dataset(path, engine=engine) as read:
                values = {name: read[name].values for name in read.variables}
            yield case(f"packed_{engine}", path.read_bytes(), values=values)


def main():
    cases = []
    for bound, libver in BOUNDS.items():
        for fill in [types, compact, indexes, filters, missing, groups, sparse, tables]:
            name = f"{fill.__name__}_{bound}"
            columns = {"groups": ["train/label", "train/pixels/image", "train/grüße"]}.get(fill.__name__)
            cases.append(case(name, fill, columns, libver=libver))
    of_many = [f"group_{i:03}/of_a_rather_long_name_{i:03}" for i in range(0, 300, 60)]
    cases.append(case("many_oldest", many, of_many, libver=BOUNDS["oldest"]))
    cases.append(case("many_newest", many, of_many, libver=BOUNDS["newest"]))
    cases.append(case("many_in_order", many, of_many, libver=BOUNDS["newest"], track_order=True))
    cases.append(case("plain_edges", edges, libver=BOUNDS["newest"]))
    cases.append(case("large", large))
    cases.append(case("block_of_the_users", compact, userblock_size=1024))
    cases.append(case("chosen", uneven, ["y_train", "x_train"]))
    cases.append(case("uneven", uneven, refused="`x_test` has 5 records, `x_train` 12"))
    cases.append(case("no_numbers", tables, ["table"], refused="a compound type"))
    cases.append(case("scaled", scaled, refused="scale-offset"))
    cases.extend(series())
    cases.extend(netcdf())
    made = {name: importlib.metadata.version(name) for name in ["h5py", "hdf5plugin", "numpy", "xarray", "netCDF4", "h5netcdf"]}
    made["hdf5"] = h5py.version.hdf5_version
    print(json.dumps({"made_by": made, "cases": cases}, indent=0, ensure_ascii=False))
    print(sum(len(c["file"]) for c in cases), "bytes of files", file=sys.stderr)


if __name__ == "__main__":
    main()
