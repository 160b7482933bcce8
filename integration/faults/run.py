#!/usr/bin/env python3
"""Faults of a store, of the way to it and of the machine, and what infeed makes of each: a table.

    integration/faults/run.py --infeed target/debug/infeed [--quick] [--server plain|moto_server|URL] [--only WORD]

A proxy of ours stands before an S3 server and does what each row says. The server is a plain one in this process
(`plain`, which needs nothing), a program of moto's (the path of `moto_server`), or one that runs already, whose bucket
AWS_* and S3_BUCKET name (`eval "$(integration/s3/serve.sh start DIR)"`, then --server "$AWS_ENDPOINT_URL").
Faults of the machine are made by `shim.c`, compiled here and preloaded. Needs python3, and cc for the shim.

Exits with 1 if a row is not as expected. --quick takes fewer images.
"""

import argparse
import asyncio
import datetime
import hashlib
import hmac
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

BUCKET = os.environ.get("S3_BUCKET", "infeed-faults")
KEY = os.environ.get("AWS_ACCESS_KEY_ID", "AKIAFAULTS")
SECRET = os.environ.get("AWS_SECRET_ACCESS_KEY", "the-secret-of-the-faults")
REGION = os.environ.get("AWS_REGION", "us-east-1")
TOKEN = "the-session-token-of-the-faults"
HERE = Path(__file__).resolve().parent


class Origin:
    """S3 as far as reading goes: listings in one page, objects, ranges, MD5s as ETags."""

    def __init__(self, objects):
        self.objects = objects
        self.tags = {key: hashlib.md5(body).hexdigest() for key, body in objects.items()}

    def answer(self, method, target, headers):
        url = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(url.query))
        key = urllib.parse.unquote(url.path)[len(BUCKET) + 2:]
        if not key:
            return self.listing(query.get("prefix", ""), query.get("delimiter"))
        body = self.objects.get(key)
        if body is None:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        told = {"ETag": f'"{self.tags[key]}"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
        if not found:
            return 200, told, body
        start, end = int(found[1]), min(int(found[2]) + 1, len(body))
        told["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
        return 206, told, body[start:end]

    def listing(self, prefix, delimiter):
        keys, folders = [], []
        for key in sorted(self.objects):
            if key.startswith(prefix):
                rest = key[len(prefix):]
                folder = prefix + rest.split("/")[0] + "/"
                if not (delimiter and "/" in rest):
                    keys.append(key)
                elif folder not in folders:
                    folders.append(folder)
        inside = "".join(entry(key, len(self.objects[key]), self.tags[key]) for key in keys)
        inside += "".join(f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in folders)
        return 200, {"Content-Type": "application/xml"}, listing(inside)


def entry(key, size=1, tag="0" * 32):
    return (f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f'<ETag>"{tag}"</ETag><Size>{size}</Size></Contents>')


def listing(inside):
    return f'<?xml version="1.0"?><ListBucketResult>{inside}</ListBucketResult>'.encode()


def more(token):
    return f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"


class Proxy(threading.Thread):
    """Passes requests on to the server; `fault` may change what comes of one.

    A fault is a coroutine: it is given what is asked and how to ask the server, and gives (status, headers, body) or None
    for a connection that breaks.
    """

    def __init__(self, upstream):
        super().__init__(daemon=True)
        self.upstream = upstream
        self.loop = asyncio.new_event_loop()
        self.fault, self.reads, self.listings, self.out_until = None, 0, 0, 0.0
        self.strangers = []
        self.ready = threading.Event()
        self.start()
        self.ready.wait()

    def run(self):
        asyncio.set_event_loop(self.loop)

        async def begin():
            server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
            other = await asyncio.start_server(self.stranger, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            self.elsewhere = f"127.0.0.1:{other.sockets[0].getsockname()[1]}"
            self.ready.set()

        self.loop.run_until_complete(begin())
        self.loop.run_forever()

    def set(self, fault):
        self.fault, self.reads, self.listings, self.out_until, self.strangers = fault, 0, 0, 0.0, []

    async def stranger(self, reader, writer):
        """Another host: whatever comes here should not have been sent."""
        self.strangers.append(await reader.read(65536))
        writer.close()

    async def serve(self, reader, writer):
        try:
            while time.monotonic() >= self.out_until:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lines = head.split("\r\n")
                method, target, _ = lines[0].split(" ")
                headers = {name.strip().lower(): value.strip()
                           for name, _, value in (line.partition(":") for line in lines[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                ask = Ask(self, method, target, headers, body)
                self.reads += ask.reads
                self.listings += ask.lists
                answer = await (self.fault(ask) if self.fault else ask.upstream())
                if answer is None or time.monotonic() < self.out_until:
                    break
                status, told, sent = answer
                told = {name: value for name, value in told.items()
                        if name.lower() not in ("connection", "transfer-encoding", "content-length", "keep-alive")}
                length = told.pop("X-Length", len(sent))
                lines = [f"HTTP/1.1 {status} X", f"Content-Length: {length}", *(f"{n}: {v}" for n, v in told.items())]
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if method == "HEAD" else sent))
                await writer.drain()
                if length != len(sent):
                    break
        # The server may end with the last row, in the middle of what nobody waits for any more.
        except (asyncio.IncompleteReadError, http.client.HTTPException, OSError):
            pass
        finally:
            writer.transport.abort() if time.monotonic() < self.out_until else writer.close()


class Ask:
    def __init__(self, proxy, method, target, headers, body):
        self.proxy, self.method, self.target, self.headers, self.body = proxy, method, target, headers, body
        url = urllib.parse.urlsplit(target)
        self.lists = method == "GET" and "list-type" in url.query
        self.reads = method == "GET" and not self.lists
        self.number = proxy.reads + 1

    async def upstream(self):
        if isinstance(self.proxy.upstream, Origin):
            return self.proxy.upstream.answer(self.method, self.target, self.headers)
        return await asyncio.to_thread(self.real)

    def real(self):
        request = urllib.request.Request(self.proxy.upstream + self.target, self.body or None, method=self.method)
        for name, value in self.headers.items():
            if name not in ("connection", "content-length"):
                request.add_unredirected_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, dict(answer.headers.items()), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers.items()), error.read()


# What goes wrong. Each is given an Ask.

def of_reads(change, one_in=1):
    async def fault(ask):
        if not ask.reads or ask.number % one_in:
            return await ask.upstream()
        return await change(ask)
    return fault


def of_listings(make):
    async def fault(ask):
        return (200, {"Content-Type": "application/xml"}, make(ask)) if ask.lists else await ask.upstream()
    return fault


async def slow_down(ask):
    return 503, {}, b"<Error><Code>SlowDown</Code><Message>less, please</Message></Error>"


async def stalls(ask):
    await asyncio.sleep(3600)


async def flips(ask):
    status, told, body = await ask.upstream()
    changed = bytearray(body)
    if changed:
        changed[len(changed) // 2] ^= 1
    return status, told, bytes(changed)


async def short(ask):
    status, told, body = await ask.upstream()
    return status, told, body[:len(body) // 2]


async def cut(ask):
    status, told, body = await ask.upstream()
    return status, {**told, "X-Length": len(body)}, body[:len(body) // 2]


async def html(ask):
    return 200, {"Content-Type": "text/html"}, b"<!DOCTYPE html><html><body>Please log in</body></html>"


def redirect(of):
    async def fault(ask):
        if not getattr(ask, of):
            return await ask.upstream()
        where = f"http://{ask.proxy.elsewhere}{ask.target}"
        return 307, {"Location": where}, b"<Error><Code>TemporaryRedirect</Code></Error>"
    return fault


async def nowhere(ask):
    return 301, {}, b"<Error><Code>PermanentRedirect</Code></Error>"


def outage(seconds, at):
    async def fault(ask):
        if ask.reads and ask.number == at:
            ask.proxy.out_until = time.monotonic() + seconds
            return None
        return await ask.upstream()
    return fault


class Result:
    def __init__(self, output, seconds):
        self.code, self.seconds = output.returncode, seconds
        self.words = output.stderr.decode(errors="replace")
        # The last error: the report's own words may stand before it.
        errors = [line for line in self.words.splitlines() if line.startswith("error")]
        self.error = errors[-1] if errors else ""
        try:
            self.report = json.loads(output.stdout)
        except ValueError:
            self.report = {}
        self.sum = self.report.get("checksum")


class Bench:
    def __init__(self, args, dir):
        self.args, self.dir, self.wrong, self.rows = args, dir, 0, 0
        self.photos = dir / "photos"
        subprocess.run([args.infeed, "synth", "imagenet", str(self.photos), "--count", str(args.count), "--classes", "4", "--seed",
                        "3"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        files = sorted(path for path in self.photos.rglob("*") if path.is_file() and not path.name.startswith("."))
        self.files = {f"photos/{path.relative_to(self.photos)}": path.read_bytes() for path in files}

    def infeed(self, *args, env=None, limit=60):
        variables = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "", "HOME": str(self.dir), **(env or {})}
        began = time.monotonic()
        try:
            output = subprocess.run([self.args.infeed, *args], env=variables, capture_output=True, timeout=limit)
        except subprocess.TimeoutExpired as late:
            output = subprocess.CompletedProcess(args, 124, late.stdout or b"", (late.stderr or b"") + b"\nerror: it hung")
        return Result(output, time.monotonic() - began)

    def read(self, url, *more, env=None):
        return self.infeed("run", url, "--batch-size", "8", "--epochs", "1", "--checksum", "--json", "-", *more, env=env)

    def row(self, name, run, expect):
        """`expect` gives what is wrong, or nothing."""
        if self.args.only and self.args.only not in name:
            return
        result = run()
        wrong = [what for what in expect(result) if what]
        equal = {None: "-", True: "equal", False: "other"}[result.sum and result.sum == self.sum]
        told = re.sub(r"\s+", " ", result.error.removeprefix("error: "))[:110]
        self.rows += 1
        self.wrong += bool(wrong)
        print(f"{'ok' if not wrong else 'WRONG':5} {name:42} exit {result.code:3} {result.seconds:6.1f} s  {equal:7} {told}")
        for what in wrong:
            print(f"      expected: {what}")
        if wrong and self.args.verbose:
            print(result.words)
        sys.stdout.flush()


def fails(*says, code=1):
    """Ends with an error; with 2 where a setting has to be changed."""
    def expect(result):
        yield result.code != code and f"exit {code}"
        for word in says:
            yield not re.search(word, result.words) and f"it says {word!r}"
        for secret in (TOKEN, SECRET):
            yield secret in result.words and "nothing secret is told"
    return expect


def sign(method, url, body, key, secret):
    """SigV4 of a request that puts an object."""
    parts = urllib.parse.urlsplit(url)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": now}
    names = ";".join(sorted(headers))
    canonical = "\n".join([method, parts.path, "", *(f"{n}:{headers[n]}" for n in sorted(headers)), "", names, digest])
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    secret = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}"
    return headers


def put(endpoint, path, body):
    url = f"{endpoint}/{BUCKET}{path}"
    # Without a type it would be taken for a form.
    headers = {"content-type": "application/octet-stream", **sign("PUT", url, body, KEY, SECRET)}
    request = urllib.request.Request(url, body or None, headers, method="PUT")
    urllib.request.urlopen(request, timeout=30).read()


def upstream(args, files, dir):
    """The server behind the proxy, and the process that has to end with us."""
    if args.server == "plain":
        return Origin(files), None
    process, endpoint = None, args.server.rstrip("/")
    if "://" not in endpoint:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        log = open(dir / "server.log", "wb")
        process = subprocess.Popen([args.server, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
        endpoint = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(endpoint, timeout=60).read()
                break
            except OSError:
                time.sleep(0.1)
    try:
        put(endpoint, "", b"")
    except urllib.error.HTTPError as error:
        if error.code != 409:
            raise
    for key, body in files.items():
        put(endpoint, "/" + key, body)
    return endpoint, process


def remote(bench, proxy, args):
    env = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": REGION,
           "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    if "://" not in args.server:
        # A server that knows its keys would refuse it.
        env["AWS_SESSION_TOKEN"] = TOKEN
    url = f"s3://{BUCKET}/photos"

    def row(name, fault, expect, *more, run=None):
        def go():
            proxy.set(fault)
            return run() if run else bench.read(url, *more, env=env)
        bench.row(name, go, expect)

    def equal(result):
        yield result.code != 0 and "exit 0"
        yield result.sum != bench.sum and "the same checksum as a local run's"

    def alone(*says):
        def expect(result):
            yield from fails(*says, code=2)(result)
            yield proxy.strangers and "nothing is sent to the other host"
        return expect

    row("nothing", None, equal)
    n = len(bench.files)
    row("503 to every read", of_reads(slow_down), fails("refused all requests for 1 s"), "--patience", "1s")
    row("every read stalls", of_reads(stalls), fails("gave nothing for 1 s"), "--patience", "1s")
    row("503 to a tenth of the reads", of_reads(slow_down, 10), equal)
    row("no server for 1 s, in the middle", outage(1, n // 2), equal)
    row("a flipped bit in a tenth of the bodies", of_reads(flips, 10), equal)
    row("a flipped bit in every body", of_reads(flips), fails("differ from those stored"))
    row("half a body that says it is all, each fifth", of_reads(short, 5), equal)
    row("half a body that says it is all, always", of_reads(short), fails("of .* bytes"))
    row("a body cut off, each fifth", of_reads(cut, 5), equal)
    row("HTML instead of every object", of_reads(html), fails("bytes"))
    row("a redirect of reads to another host", redirect("reads"), alone(proxy.elsewhere, "AWS_ENDPOINT_URL"))
    row("a redirect of listings to another host", redirect("lists"), alone(proxy.elsewhere, "AWS_ENDPOINT_URL"))
    row("another region, and nobody says which", nowhere, fails("is not in the region", "AWS_REGION", code=2))

    pages = [
        ("a token that comes again", lambda ask: listing(more("same")), "gave before"),
        ("new tokens, no keys, for ever", lambda ask: listing(more(ask.proxy.listings)), "pages without a key"),
        ("new tokens, the same keys", lambda ask: listing(more(ask.proxy.listings) + entry("photos/a.jpg")), "twice"),
        ("a key twice", lambda ask: listing(entry("photos/a.jpg") * 2), "twice"),
        ("more to come, and no token", lambda ask: listing("<IsTruncated>true</IsTruncated>" + entry("photos/a")), "breaks off"),
        ("HTML", lambda ask: b"<!DOCTYPE html><html></html>", "begins with"),
        ("a key with ..", lambda ask: listing(entry("photos/../x")), r"photos/\.\./x"),
        ("a key with //", lambda ask: listing(entry("photos//x")), "photos//x"),
    ]
    for name, make, says in pages:
        row(f"listing: {name}", of_listings(make), fails(says, "photos"))

    def stage(name, fault, good):
        copy = bench.dir / f"copy-{bench.rows}"

        def expect(result):
            yield from (fails("differ from those stored")(result) if not good else [result.code != 0 and "exit 0"])
            kept = {f"photos/{path.relative_to(copy)}": path.read_bytes() for path in copy.rglob("*")
                    if path.is_file() and ".infeed-stage" not in path.parts}
            yield any(bench.files.get(key) != body for key, body in kept.items()) and "no file that differs"
            yield good and len(kept) != n and f"{n} files"
            by = result.report.get("verified", {})
            yield good and by.get("md5", 0) + by.get("checksum", 0) != n and f"{n} compared by a hash, not {by}"
        row(name, fault, expect, run=lambda: bench.infeed("stage", url, str(copy), "--json", "-", env=env))

    stage("stage: a flipped bit in a fifth", of_reads(flips, 5), True)
    stage("stage: a flipped bit in every body", of_reads(flips), False)
    proxy.set(None)


def local(bench, args):
    compiler = shutil.which("cc")
    if not compiler or not sys.platform.startswith("linux"):
        print("skipped: faults of the machine need cc and Linux")
        return
    shim = bench.dir / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(shim), str(HERE / "shim.c"), "-ldl"], check=True)
    name = sorted(bench.files)[len(bench.files) // 2].rsplit("/", 1)[1]

    def env(kind, name, every=1):
        return {"LD_PRELOAD": str(shim), "FAULT_KIND": kind, "FAULT_NAME": name, "FAULT_EVERY": str(every)}

    def equal(result):
        yield result.code != 0 and "exit 0"
        yield result.sum != bench.sum and "the same checksum as without"

    url = str(bench.photos)
    for what, env_, expect in [
        ("file: EIO when one is read", env("eio", name), fails(re.escape(name))),
        ("file: EACCES when one is opened", env("eacces", name), fails(re.escape(name))),
        ("file: reads that give half", env("short", ".JPEG", 2), equal),
        ("file: EINTR at each third read", env("eintr", ".JPEG", 3), equal),
        ("file: EMFILE from the tenth on", env("emfile", ".JPEG", 10), fails("too many files are open", code=2)),
    ]:
        bench.row(what, lambda env_=env_: bench.read(url, env=env_), expect)
    copy = bench.dir / "full"
    bench.row("stage: ENOSPC when a file is written",
              lambda: bench.infeed("stage", url, str(copy), env=env("enospc", ".part", 5)), fails("free space"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infeed", required=True)
    parser.add_argument("--quick", action="store_true", help="fewer images")
    parser.add_argument("--server", default="plain", help="plain, the path of moto_server, or a URL")
    parser.add_argument("--only", help="rows whose name holds this")
    parser.add_argument("--verbose", action="store_true", help="all that a row that is wrong said")
    args = parser.parse_args()
    args.infeed = str(Path(args.infeed).resolve())
    args.count = 40 if args.quick else 400
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as dir:
        bench = Bench(args, Path(dir))
        whole = bench.read(str(bench.photos))
        bench.sum = whole.sum
        if whole.code or not whole.sum:
            sys.exit(f"a local run fails: {whole.words}")
        server, process = upstream(args, bench.files, Path(dir))
        try:
            remote(bench, Proxy(server), args)
        finally:
            if process:
                process.terminate()
        local(bench, args)
    print(f"{bench.rows} rows in {time.monotonic() - began:.0f} s, {bench.wrong} not as expected")
    sys.exit(bool(bench.wrong))


if __name__ == "__main__":
    main()
