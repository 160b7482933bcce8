"""A store that speaks enough S3 to be read from, over a folder, and that fails as asked.

It signs nothing and checks no signature: what is asked of it is only reading. Faults are drawn from a seed; each object
is let through after three faults in a row, since a run that gives up is no finding.
"""

import email.utils
import hashlib
import random
import socket
import struct
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import escape

FAULTS = ("error", "slow-down", "reset", "half", "delay")
IN_A_ROW = 3


class Store:
    """Serves `root` as the bucket `soak`; `rate` is the share of requests for bytes that fail."""

    def __init__(self, root, seed):
        self.root = Path(root).resolve()
        self.rate = 0.0
        self.requests = 0
        self.faults = dict.fromkeys(FAULTS, 0)
        self._draws = random.Random(seed)
        self._in_a_row = {}
        self._lock = threading.Lock()
        self._etags = {}
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                store.answer(self, body=True)

            def do_HEAD(self):
                store.answer(self, body=False)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, *_):
                # Readers are killed in the middle of answers: that is what this is for.
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def env(self):
        port = self._server.server_address[1]
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIASOAK", "AWS_SECRET_ACCESS_KEY": "soak",
        }

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, http, body):
        url = urllib.parse.urlsplit(http.path)
        parts = urllib.parse.unquote(url.path).lstrip("/").split("/", 1)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        with self._lock:
            self.requests += 1
        if len(parts) < 2 or not parts[1]:
            return self._list(http, query)
        path = (self.root / parts[1]).resolve()
        if not path.is_relative_to(self.root) or not path.is_file():
            return self._send(http, 404, b"<Error><Code>NoSuchKey</Code></Error>")
        fault = self._fault(parts[1])
        if fault == "error":
            return self._send(http, 500, b"<Error><Code>InternalError</Code></Error>")
        if fault == "slow-down":
            return self._send(http, 503, b"<Error><Code>SlowDown</Code></Error>")
        if fault == "reset":
            return self._reset(http)
        if fault == "delay":
            time.sleep(0.3)
        self._object(http, path, body, fault == "half")

    def _fault(self, name):
        with self._lock:
            row = self._in_a_row.get(name, 0)
            if row >= IN_A_ROW or self._draws.random() >= self.rate:
                self._in_a_row[name] = 0
                return None
            fault = self._draws.choice(FAULTS)
            self._in_a_row[name] = row + (fault != "delay")
            self.faults[fault] += 1
            return fault

    def _object(self, http, path, body, half):
        size = path.stat().st_size
        start, end, status = 0, size, 200
        asked = http.headers.get("Range", "")
        if asked.startswith("bytes="):
            first, _, last = asked[6:].split(",")[0].partition("-")
            start = int(first) if first else max(0, size - int(last))
            end = min(int(last) + 1, size) if first and last else size
            status = 206
            if start >= size:
                return self._send(http, 416, b"<Error><Code>InvalidRange</Code></Error>")
        with open(path, "rb") as file:
            file.seek(start)
            data = file.read(end - start)
        headers = {
            "ETag": self._etag(path), "Content-Type": "application/octet-stream", "Accept-Ranges": "bytes",
            "Last-Modified": email.utils.formatdate(path.stat().st_mtime, usegmt=True),
        }
        if status == 206:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self._head(http, status, headers, len(data))
        if not body:
            return
        if half:
            http.wfile.write(data[: len(data) // 2])
            return self._reset(http)
        http.wfile.write(data)

    def _etag(self, path):
        with self._lock:
            if path not in self._etags:
                self._etags[path] = '"' + hashlib.md5(path.read_bytes()).hexdigest() + '"'
            return self._etags[path]

    def _list(self, http, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        names = sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file())
        names = [name for name in names if name.startswith(prefix)]
        after = query.get("continuation-token") or query.get("start-after") or ""
        keys, folders = [], []
        for name in names:
            rest = name[len(prefix):]
            if delimiter and delimiter in rest:
                folder = prefix + rest.split(delimiter, 1)[0] + delimiter
                if folder > after and folder not in folders:
                    folders.append(folder)
            elif name > after:
                keys.append(name)
        most = int(query.get("max-keys", "1000"))
        page = sorted(keys + folders)[:most]
        cut = len(keys) + len(folders) > most
        out = ['<?xml version="1.0"?><ListBucketResult>', f"<IsTruncated>{str(cut).lower()}</IsTruncated>"]
        if cut:
            out.append(f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>")
        for name in page:
            if name in folders:
                out.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
                continue
            path = self.root / name
            changed = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(path.stat().st_mtime))
            out.append(f"<Contents><Key>{escape(name)}</Key><LastModified>{changed}</LastModified>"
                       f"<ETag>{escape(self._etag(path))}</ETag><Size>{path.stat().st_size}</Size></Contents>")
        self._send(http, 200, ("".join(out) + "</ListBucketResult>").encode())

    def _send(self, http, status, data):
        self._head(http, status, {"Content-Type": "application/xml"}, len(data))
        if http.command != "HEAD":
            http.wfile.write(data)

    @staticmethod
    def _head(http, status, headers, length):
        http.send_response(status)
        for name, value in headers.items():
            http.send_header(name, value)
        http.send_header("Content-Length", str(length))
        http.end_headers()

    @staticmethod
    def _reset(http):
        http.wfile.flush()
        http.close_connection = True
        # Lingering for no time at all sends a reset instead of an end.
        http.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        http.connection.close()
