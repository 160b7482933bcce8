"""An S3 server as far as reading goes: listings in one page, objects, ranges. It counts reads, and can hold some back."""

import hashlib
import re
import threading
import urllib.parse
from collections import Counter
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BUCKET = "launchers"


class Store:
    """The files of a folder as objects of a bucket, at `environment` for the processes that read them."""

    def __init__(self, folder: Path, prefix: str):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        self.objects = {f"{prefix}/{path.relative_to(folder)}": path.read_bytes() for path in files}
        self.tags = {key: hashlib.md5(body).hexdigest() for key, body in self.objects.items()}
        self.url = f"s3://{BUCKET}/{prefix}"
        self.reads: Counter[str] = Counter()
        self.listings = 0
        self.change = threading.Condition()
        self.held: frozenset[str] = frozenset()
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                store.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            # Several ranks begin at once.
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """Readers are killed in the middle of answers: that is no news."""

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server.server_port}", "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "AKIALAUNCHERS", "AWS_SECRET_ACCESS_KEY": "none-that-counts",
        }  # fmt: skip

    def close(self) -> None:
        self.hold()
        self.server.shutdown()
        self.server.server_close()

    def hold(self, keys: Iterable[str] = ()) -> None:
        """Lets reads of these wait, until others are held."""
        with self.change:
            self.held = frozenset(keys)
            self.change.notify_all()

    def begin(self) -> None:
        """Counts from here."""
        with self.change:
            self.reads, self.listings = Counter(), 0

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        url = urllib.parse.urlsplit(request.path)
        key = urllib.parse.unquote(url.path)[len(BUCKET) + 2:]
        if not key:
            query = dict(urllib.parse.parse_qsl(url.query))
            with self.change:
                self.listings += 1
            send(request, 200, self.listing(query.get("prefix", ""), query.get("delimiter")), {})
            return
        body = self.objects.get(key)
        if body is None:
            send(request, 404, b"<Error><Code>NoSuchKey</Code></Error>", {})
            return
        if request.command == "GET":
            with self.change:
                self.change.wait_for(lambda: key not in self.held)
                self.reads[key] += 1
        told = {"ETag": f'"{self.tags[key]}"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if found := re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", "")):
            start, end = int(found[1]), min(int(found[2] or len(body)) + 1, len(body))
            told["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
            send(request, 206, body[start:end], told)
        else:
            send(request, 200, body, told)

    def listing(self, prefix: str, delimiter: str | None) -> bytes:
        keys, folders = [], []
        for key in sorted(self.objects):
            if key.startswith(prefix):
                rest = key[len(prefix):]
                folder = prefix + rest.split("/")[0] + "/"
                if not (delimiter and "/" in rest):
                    keys.append(key)
                elif folder not in folders:
                    folders.append(folder)
        inside = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f'<ETag>"{self.tags[key]}"</ETag><Size>{len(self.objects[key])}</Size></Contents>'
            for key in keys
        )
        inside += "".join(f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in folders)
        return f'<?xml version="1.0"?><ListBucketResult>{inside}</ListBucketResult>'.encode()


def send(request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]) -> None:
    try:
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)
    except OSError:
        # The reader was killed.
        request.close_connection = True
