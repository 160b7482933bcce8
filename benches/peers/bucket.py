"""A folder as a bucket on the loopback, with a latency for each answer and a bandwidth for each request.

It lists (ListObjectsV2), and gives heads, objects and ranges of them, path style, to whoever asks: `s3://` with
`environment`, or `http://127.0.0.1:PORT/BUCKET/KEY`. One thread serves all, out of memory. It shares the cores with who reads,
so what it used is told, and `ceiling` what it is able to give.
"""

import asyncio
import bisect
import re
import socket
import sys
import threading
import time
import urllib.parse
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BUCKET = "bench"
# What is written at a time where the bandwidth is bounded: 6.5 ms of 20 MB/s, and most photographs as a whole.
SLICE = 128 << 10
# Keys of a page of a listing, as S3's.
PAGE = 1000
REGION = "us-east-1"


class Bucket:
    """Ports differ in the latency of an answer; all have the same objects. `bandwidth` is in bytes a second, 0 has no bound."""

    def __init__(self, folder, bandwidth):
        files = {str(path.relative_to(folder)): path for path in Path(folder).rglob("*") if path.is_file()}
        self.keys = sorted(files)
        # Hard links share one body and its tag.
        bodies = {}
        for path in files.values():
            if (inode := path.stat().st_ino) not in bodies:
                bodies[inode] = (body := path.read_bytes(), f"{zlib.crc32(body):08x}")
        shared = {key: bodies[files[key].stat().st_ino] for key in self.keys}
        self.objects = {key: body for key, (body, _) in shared.items()}
        self.tags = {key: tag for key, (_, tag) in shared.items()}
        self.bandwidth = bandwidth
        self.requests = self.sent = 0
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.clock = time.pthread_getcpuclockid(self.thread.ident)

    def listen(self, latency, bounded=True):
        """A port that answers after so many seconds."""
        bandwidth = self.bandwidth if bounded else 0
        begun = self.loop.create_server(lambda: Connection(self, latency, bandwidth), "127.0.0.1", 0, backlog=1024)
        return asyncio.run_coroutine_threadsafe(begun, self.loop).result().sockets[0].getsockname()[1]

    def used(self):
        """Requests, bytes and seconds of processor time until now."""
        return self.requests, self.sent, time.clock_gettime(self.clock)

    def listing(self, prefix, delimiter, after):
        contents, folders, last = [], [], ""
        at = bisect.bisect_right(self.keys, after) if after > prefix else bisect.bisect_left(self.keys, prefix)
        while at < len(self.keys) and (key := self.keys[at]).startswith(prefix) and len(contents) + len(folders) < PAGE:
            inside, _, deeper = key.removeprefix(prefix).partition("/")
            if delimiter and deeper:
                folders.append(f"{prefix}{inside}/")
                # The key after all of the folder.
                last = f"{prefix}{inside}/\U0010ffff"
                at = bisect.bisect_right(self.keys, last)
                continue
            contents.append(
                f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>&quot;{self.tags[key]}&quot;</ETag><Size>{len(self.objects[key])}</Size></Contents>"
            )
            last, at = key, at + 1
        more = at < len(self.keys) and self.keys[at].startswith(prefix)
        token = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>" if more else ""
        common = "".join(f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in folders)
        # pyarrow takes a prefix for a folder by the count.
        count = f"<KeyCount>{len(contents) + len(folders)}</KeyCount>"
        return f'<?xml version="1.0"?><ListBucketResult>{count}{token}{"".join(contents)}{common}</ListBucketResult>'.encode()

    def answer(self, method, target, headers):
        """The head of an answer, and its body."""
        url = urllib.parse.urlsplit(target)
        key = urllib.parse.unquote(url.path)[len(BUCKET) + 2 :]
        status, fields = "200 OK", ""
        if not key:
            query = dict(urllib.parse.parse_qsl(url.query))
            after = query.get("continuation-token") or query.get("start-after", "")
            body = self.listing(query.get("prefix", ""), query.get("delimiter"), after)
        elif key not in self.objects:
            status, body = "404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>"
        else:
            body = memoryview(self.objects[key])
            fields = f'ETag: "{self.tags[key]}"\r\n'
            fields += "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nAccept-Ranges: bytes\r\n"
            if found := re.search(r"^range: bytes=(\d*)-(\d*)", headers, re.IGNORECASE | re.MULTILINE):
                size = len(body)
                first = int(found[1]) if found[1] else max(size - int(found[2]), 0)
                end = min(int(found[2]) + 1, size) if found[1] and found[2] else size
                status, body = "206 Partial Content", body[first:end]
                fields += f"Content-Range: bytes {first}-{end - 1}/{size}\r\n"
        self.requests += 1
        head = f"HTTP/1.1 {status}\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode()
        return head, b"" if method == "HEAD" else body


class Connection(asyncio.Protocol):
    """Answers one request after another; what is on the way is ended when the other side goes."""

    def __init__(self, bucket, latency, bandwidth):
        self.bucket, self.latency, self.bandwidth = bucket, latency, bandwidth
        self.received = b""
        self.later = None

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, _):
        if self.later:
            self.later.cancel()

    def data_received(self, data):
        self.received += data
        head, end, rest = self.received.partition(b"\r\n\r\n")
        # Nobody sends bodies here, and nobody a request before the last one is answered.
        if not end:
            return
        self.received = rest
        first, _, headers = head.decode("latin-1").partition("\r\n")
        method, target, _ = first.split(" ")
        answer = self.bucket.answer(method, target, headers)
        if self.latency:
            self.later = self.bucket.loop.call_later(self.latency, self.begin, *answer)
        else:
            self.begin(*answer)

    def begin(self, head, body):
        self.transport.write(head)
        if self.bandwidth:
            self.wait(body, 0, self.bucket.loop.time())
        elif body:
            self.send(body)

    def wait(self, body, begin, start):
        """Until the last byte of the next slice is due, so that the whole takes as long as its bandwidth says."""
        if begin < len(body):
            end = min(begin + SLICE, len(body))
            self.later = self.bucket.loop.call_at(start + end / self.bandwidth, self.slice, body, begin, end, start)

    def slice(self, body, begin, end, start):
        self.send(body[begin:end])
        self.wait(body, end, start)

    def send(self, part):
        self.bucket.sent += len(part)
        self.transport.write(part)


def environment(port):
    """What infeed is told by."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": REGION,
        "AWS_SKIP_SIGNATURE": "true",
    }


def ask(port, keys):
    """Bytes of those objects, one after another on one connection, by next to nothing but system calls."""
    buffer, got = memoryview(bytearray(1 << 20)), 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for key in keys:
            connection.sendall(f"GET /{BUCKET}/{urllib.parse.quote(key)} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(4096)
            left = int(re.search(rb"Content-Length: (\d+)", head)[1]) - (len(head) - head.index(b"\r\n\r\n") - 4)
            while left:
                some = connection.recv_into(buffer, min(left, len(buffer)))
                left -= some
                got += some
    return got


def ceiling(port, keys, connections):
    """Objects a second and bytes a second of a bare loop."""
    start = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        got = sum(pool.map(lambda n: ask(port, keys[n::connections]), range(connections)))
    seconds = time.perf_counter() - start
    return len(keys) / seconds, got / seconds


if __name__ == "__main__":
    # In a process of its own: `bucket.py PORT CONNECTIONS`, keys on stdin.
    print(*ceiling(int(sys.argv[1]), sys.stdin.read().splitlines(), int(sys.argv[2])))
