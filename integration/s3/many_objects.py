#!/usr/bin/env python3
"""A bucket of 1.28 million objects, opened by the ranks of a job: each lists it, or all share one listing.

    integration/s3/many_objects.py --infeed target/release/infeed [--objects 1281167] [--ranks 8] [--delay 0.02] [--json FILE]

The bucket is a stand-in on this machine, in a process of its own, which makes keys as ImageNet's are
(`train/n00000007/n00000007_123.JPEG`, 1000 classes) and gives the same small JPEG for each. Listings answer after
`--delay` seconds, as S3's do after tens of milliseconds; the ranks start together. For each way: requests that list,
seconds until a rank's dataset is open (median, slowest), peak memory of a rank (median), and the checksum of a batch,
which must be equal. Needs python3 and Linux.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import urllib.parse
import zlib
from pathlib import Path

BUCKET = "many"
CLASSES = 1000
PAGE = 1000


def png(side=32):
    """A picture that any decoder takes."""
    rows = b"".join(b"\0" + bytes((x * 7 + y * 3 + c) % 256 for x in range(side) for c in range(3)) for y in range(side))
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Bucket:
    """Keys in S3's order, by arithmetic: numbers within a class have as many digits as one another."""

    def __init__(self, objects, body):
        self.count, self.body = objects, body
        self.own = {}
        self.each = -(-objects // CLASSES)

    def key(self, i):
        label, number = divmod(i, self.each)
        return f"train/n{label:08}/n{label:08}_{number:06}.png"

    def place(self, key):
        """How many keys are not behind this one."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.key(middle) <= key else (low, middle)
        return low

    def listing(self, prefix, after, delimiter):
        start = self.place(max(after, prefix.rstrip("/") + "/") if prefix else after)
        contents, folders, i = [], [], start
        while i < self.count and len(contents) + len(folders) < PAGE:
            key = self.key(i)
            if not key.startswith(prefix):
                break
            rest = key[len(prefix):]
            if delimiter and "/" in rest:
                folder = prefix + rest.split("/")[0] + "/"
                folders.append(folder)
                # Behind all that lie in it.
                i = self.place(folder + "\x7f")
                last = folder + "\x7f"
                continue
            contents.append(
                f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>&quot;{i:032x}&quot;</ETag><Size>{len(self.body)}</Size></Contents>"
            )
            last = key
            i += 1
        more = i < self.count and self.key(i).startswith(prefix) and (contents or folders)
        token = f"<NextContinuationToken>{urllib.parse.quote(last)}</NextContinuationToken>" if more else ""
        common = "".join(f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in folders)
        return (
            f'<?xml version="1.0"?><ListBucketResult><Name>{BUCKET}</Name><KeyCount>{len(contents)}</KeyCount>'
            f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{token}{''.join(contents)}{common}</ListBucketResult>"
        ).encode()

    def etag(self, key):
        return f'"{self.place(key) - 1:032x}"'


async def serve(bucket, delay, ready, counts):
    # Of the one object that is large enough: the listing.
    parts = {}

    async def answer(reader, writer):
        nonlocal parts
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                method, target, _ = lines[0].split(" ")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                url = urllib.parse.urlsplit(target)
                key = urllib.parse.unquote(url.path)[len(BUCKET) + 2:]
                status, more, content = "200 OK", {}, b""
                query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
                if method == "PUT" and "partNumber" in query:
                    parts[int(query["partNumber"])] = body
                    more["ETag"] = '"part"'
                elif method == "PUT":
                    bucket.own[key] = body
                    more["ETag"] = '"own"'
                elif method == "POST" and "uploads" in query:
                    parts = {}
                    content = b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
                elif method == "POST":
                    bucket.own[key] = b"".join(parts[number] for number in sorted(parts))
                    content = b"<CompleteMultipartUploadResult><ETag>own</ETag></CompleteMultipartUploadResult>"
                elif not key:
                    after = urllib.parse.unquote(query.get("continuation-token", "")) or query.get("start-after", "")
                    with counts.get_lock():
                        counts.value += 1
                    await asyncio.sleep(delay)
                    content = bucket.listing(query.get("prefix", ""), after, query.get("delimiter"))
                elif key in bucket.own:
                    content, more = bucket.own[key], {"ETag": '"own"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
                elif (at := bucket.place(key)) and bucket.key(at - 1) == key:
                    content = bucket.body
                    more = {"ETag": bucket.etag(key), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
                else:
                    status, content = "404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>"
                if (range_ := headers.get("range")) and status.startswith("200"):
                    first, last = range_.removeprefix("bytes=").split("-")
                    size, last = len(content), min(int(last or 1 << 62), len(content) - 1)
                    content = content[int(first):last + 1]
                    status, more["Content-Range"] = "206 Partial Content", f"bytes {first}-{last}/{size}"
                fields = "".join(f"{name}: {value}\r\n" for name, value in more.items())
                writer.write(f"HTTP/1.1 {status}\r\n{fields}Content-Length: {len(content)}\r\n\r\n".encode())
                if method != "HEAD":
                    writer.write(content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 20)
    ready.put(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def store(objects, delay, ready, counts):
    asyncio.run(serve(Bucket(objects, png()), delay, ready, counts))


def ranks(args, env, folder, listing):
    """Starts all at once; gives each one's report."""
    started = []
    for rank in range(args.ranks):
        report = folder / f"{rank}.json"
        words = [args.infeed, "run", f"s3://{BUCKET}/train", "--device", "cpu", "--workers", "1", "--batch-size", "8", "--verify", "never"]
        words += ["--transform", "center_crop:32", "--max-batches", "1", "--shuffle", "1", "--checksum", "--json", report]
        words += ["--rank", str(rank), "--world-size", str(args.ranks)]
        words += ["--listing", listing] if listing else []
        started.append((subprocess.Popen(list(map(str, words)), env=env, stdout=subprocess.DEVNULL), report))
    if any(process.wait() for process, _ in started):
        sys.exit("a rank has failed")
    return [json.loads(report.read_text()) for _, report in started]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--infeed", required=True, type=Path)
    parser.add_argument("--objects", type=int, default=1_281_167)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--delay", type=float, default=0.02)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    ready, counts = multiprocessing.Queue(), multiprocessing.Value("q", 0)
    server = multiprocessing.Process(target=store, args=(args.objects, args.delay, ready, counts), daemon=True)
    server.start()
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ready.get()}",
        "AWS_ACCESS_KEY_ID": "AKIAMANY",
        "AWS_SECRET_ACCESS_KEY": "many",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "INFEED_MANIFEST_DIR": "off",
    }
    rows, sums = [], set()
    print("| way | requests that list | open, median (slowest) | memory of a rank |\n|---|---|---|---|")
    for round_ in range(args.rounds):
        url = f"s3://{BUCKET}/jobs/{round_}.listing"
        for way, listing in [("each lists", None), ("one listing, made", url), ("one listing, there", url)]:
            with tempfile.TemporaryDirectory() as folder:
                counts.value = 0
                reports = ranks(args, env, Path(folder), listing)
            opened = [report["open_seconds"] for report in reports]
            memory = statistics.median(report["peak_rss_bytes"] for report in reports)
            sums.add(tuple(report["checksum"] for report in reports))
            rows.append({"way": way, "lists": counts.value, "open_seconds": opened, "memory": memory})
            print(f"| {way} | {counts.value} | {statistics.median(opened):.2f} s ({max(opened):.2f}) | {memory / 1e6:.0f} MB |")
    server.terminate()
    if args.json:
        args.json.write_text(json.dumps({"objects": args.objects, "ranks": args.ranks, "delay": args.delay, "rows": rows}))
    if len(sums) != 1:
        sys.exit("the ranks did not see the same objects in each way")


if __name__ == "__main__":
    main()
