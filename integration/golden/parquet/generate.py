"""Writes the files beside it: the same 10 rows by writers other than ours.

    python -m venv venv && venv/bin/pip install pyarrow polars duckdb fastparquet pandas && venv/bin/python generate.py

integration/parquet.rs knows the rows: `row` below is its `row`.
"""

import json
import pathlib

import duckdb
import fastparquet
import pandas
import polars
import pyarrow
import pyarrow.parquet

HERE = pathlib.Path(__file__).parent
ROWS = 10


def row(i):
    return {
        # What a codec recognises; nothing decodes it.
        "image": {"bytes": b"\x89PNG\r\n\x1a\n" + bytes([i]) * (i * 7), "path": f"{i}.png"},
        "label": i % 3,
        "caption": None if i % 5 == 4 else "a picture of " + "cat" * (i % 3),
        "n": i * 1_000_000_007 - 5,
        "small": i - 3,
        "score": i / 4,
        "weight": i / 3,
        "flag": i % 4 == 1,
        "maybe": None if i % 2 else i / 2,
        "blank": None,
    }


TYPES = {
    "image": pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())]),
    "label": pyarrow.int64(),
    "caption": pyarrow.string(),
    "n": pyarrow.int64(),
    "small": pyarrow.int32(),
    "score": pyarrow.float32(),
    "weight": pyarrow.float64(),
    "flag": pyarrow.bool_(),
    "maybe": pyarrow.float64(),
    "blank": pyarrow.string(),
}
ALL = [row(i) for i in range(ROWS)]
TABLE = pyarrow.table({name: pyarrow.array([r[name] for r in ALL], kind) for name, kind in TYPES.items()})
FEATURES = {
    "image": {"_type": "Image"},
    "label": {"names": ["cat", "dog", "owl"], "_type": "ClassLabel"},
    "caption": {"dtype": "string", "_type": "Value"},
}
ABOUT = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
PLAIN = {"use_dictionary": False}


def arrow(name, table=TABLE, **options):
    options = {"row_group_size": 4} | options
    pyarrow.parquet.write_table(table.replace_schema_metadata(ABOUT), HERE / f"{name}.parquet", **options)


# As `datasets` writes: images as they are, the rest with Snappy.
columns = ["image.bytes", "image.path", *(name for name in TYPES if name != "image")]
arrow("datasets", compression={c: "none" if c.startswith("image") else "snappy" for c in columns},
      use_dictionary=[c for c in columns if not c.startswith("image")], store_schema=True)
arrow("v1-gzip-plain", compression="gzip", **PLAIN)
arrow("v1-none-dictionary", compression="none", data_page_size=1, write_batch_size=2)
arrow("v2-zstd-dictionary", compression="zstd", data_page_version="2.0")
arrow("v2-snappy-plain", compression="snappy", data_page_version="2.0", data_page_size=1, write_batch_size=1, **PLAIN)
arrow("v2-lz4-deltas", compression="lz4", data_page_version="2.0", use_dictionary=False, column_encoding={
    "image.bytes": "DELTA_LENGTH_BYTE_ARRAY", "image.path": "DELTA_LENGTH_BYTE_ARRAY",
    "caption": "DELTA_LENGTH_BYTE_ARRAY", "blank": "DELTA_LENGTH_BYTE_ARRAY", "label": "DELTA_BINARY_PACKED",
    "n": "DELTA_BINARY_PACKED", "small": "DELTA_BINARY_PACKED", "score": "BYTE_STREAM_SPLIT",
    "weight": "BYTE_STREAM_SPLIT", "maybe": "BYTE_STREAM_SPLIT", "flag": "RLE"})
# A dictionary of categories, whole in each group: more values than rows.
categories = pyarrow.array(sorted({r["caption"] for r in ALL if r["caption"]}) + [f"none of these {i}" for i in range(30)])
codes = pyarrow.array([None if r["caption"] is None else categories.to_pylist().index(r["caption"]) for r in ALL], pyarrow.int32())
at = TABLE.schema.get_field_index("caption")
arrow("categories", TABLE.set_column(at, "caption", pyarrow.DictionaryArray.from_arrays(codes, categories)))
# Refused.
arrow("brotli", compression="brotli", row_group_size=ROWS)

ALL_ROWS = TABLE
polars.from_arrow(TABLE).write_parquet(HERE / "polars-zstd.parquet", row_group_size=4, compression="zstd")
for version, codec in [("V1", "snappy"), ("V2", "zstd")]:
    path = HERE / f"duckdb-{version.lower()}-{codec}.parquet"
    duckdb.sql(f"COPY (SELECT * FROM ALL_ROWS) TO '{path}' (FORMAT parquet, COMPRESSION {codec}, PARQUET_VERSION {version})")
# Without structs: it has none.
flat = {name: [r[name] for r in ALL] for name in TYPES if name not in ("image", "blank")}
flat = pandas.DataFrame({"image": [r["image"]["bytes"] for r in ALL]} | flat).astype({"caption": object})
flat = flat.astype({"small": "int32", "score": "float32"})
fastparquet.write(str(HERE / "fastparquet-gzip.parquet"), flat, row_group_offsets=[0, 4, 8], compression="GZIP",
                  object_encoding={"image": "bytes", "caption": "utf8"})

# Lists: tokens of any length, boxes of four numbers, a list that is missing.
LISTS = pyarrow.table({
    "tokens": pyarrow.array([[i * 10 + k for k in range(i % 4)] for i in range(ROWS)], pyarrow.list_(pyarrow.int32())),
    "boxes": pyarrow.array([[[i + k / 4] * 4 for k in range(i % 3)] for i in range(ROWS)],
                           pyarrow.list_(pyarrow.list_(pyarrow.float32()))),
    "none": pyarrow.array([None if i % 2 else [i % 3 == 0] for i in range(ROWS)], pyarrow.list_(pyarrow.bool_())),
})
pyarrow.parquet.write_table(LISTS, HERE / "lists-pyarrow-v2.parquet", row_group_size=4, data_page_version="2.0",
                            compression="zstd", data_page_size=1, write_batch_size=3)
polars.from_arrow(LISTS).write_parquet(HERE / "lists-polars.parquet", row_group_size=4, compression="snappy")
duckdb.sql(f"COPY (SELECT * FROM LISTS) TO '{HERE / 'lists-duckdb.parquet'}' (FORMAT parquet, COMPRESSION snappy)")
