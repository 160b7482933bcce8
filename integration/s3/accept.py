#!/usr/bin/env python3
"""Checks infeed against a real S3 server, and measures it beside other clients.

    eval "$(integration/s3/serve.sh start DIR)"
    DIR/venv/bin/pip install boto3 s3torchconnectorclient
    DIR/venv/bin/python integration/s3/accept.py --infeed target/release/infeed --rates "cargo bench --bench requests --"

Everyone reads the same objects from the same server on the same cores, one after another, round after round; the tables
give the median and range over the rounds. CPU is that of the client alone. The server must be on a machine that is
otherwise idle; on one machine with the clients, it limits the rate, and CPU per GB is the figure to compare.
"""

import argparse
import concurrent.futures
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

SMALL = 107_000
LARGE = 64 << 20
RANGE = 8 << 20


def client():
    import boto3
    from botocore.config import Config

    return boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name=os.environ["AWS_REGION"],
                        config=Config(max_pool_connections=64, retries={"max_attempts": 1}))


def bucket():
    return os.environ["S3_BUCKET"]


def upload(small, large):
    """Objects for the rates, unless they are there."""
    s3 = client()
    found = s3.list_objects_v2(Bucket=bucket(), Prefix="rates/", MaxKeys=1000).get("KeyCount", 0)
    if found >= min(small + large, 1000):
        return
    body = os.urandom(LARGE)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: s3.put_object(Bucket=bucket(), Key=f"rates/small/{i:05}", Body=body[i:i + SMALL]),
                      range(small)))
    for i in range(large):
        s3.put_object(Bucket=bucket(), Key=f"rates/ranges/{i:05}", Body=body)


def run(infeed, *args, **env):
    return subprocess.run([infeed, *args], env={**os.environ, **env}, capture_output=True, text=True)


def accept(infeed):
    """Raises at the first promise that is broken."""
    s3 = client()
    with tempfile.TemporaryDirectory() as folder:
        photos = os.path.join(folder, "photos")
        made = run(infeed, "synth", "imagenet", photos, "--count", "60", "--classes", "5", "--seed", "1")
        assert made.returncode == 0, made.stderr
        for root, _, files in os.walk(photos):
            for name in files:
                path = os.path.join(root, name)
                s3.upload_file(path, bucket(), "accept/" + os.path.relpath(path, folder))
        url = f"s3://{bucket()}/accept/photos"
        options = ["--shuffle", "3", "--batch-size", "7", "--epochs", "2", "--checksum", "--json", "-"]
        sums = []
        for where in (photos, url):
            done = run(infeed, "run", where, *options)
            assert done.returncode == 0, done.stderr
            sums.append(json.loads(done.stdout)["checksum"])
        assert sums[0] == sums[1], sums
        print("equal checksum from the folder and from the bucket:", sums[0])
        # Keys with characters that signing and urls trip over, and more of them than a page.
        jpeg = next(os.path.join(r, f) for r, _, fs in os.walk(photos) for f in fs if f.lower().endswith((".jpg", ".jpeg")))
        body = open(jpeg, "rb").read()
        odd = ["a b/ö.jpg", "a b/1+1=2&.jpg", "a b/100%25.jpg", "a-b/x.jpg", "a/x.jpg", "日本/猫.jpg"]
        many = odd + [f"many/{i:04}.jpg" for i in range(1200)]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda key: s3.put_object(Bucket=bucket(), Key=f"odd/{key}", Body=body), many))
        found = run(infeed, "inspect", f"s3://{bucket()}/odd", "--json", "-")
        assert found.returncode == 0, found.stderr
        found = json.loads(found.stdout)
        assert found["records"] == len(many), found["records"]
        assert found["sizes"]["unreadable"] == 0, found["sizes"]
        assert found["connection"]["endpoint"] == os.environ["AWS_ENDPOINT_URL"], found["connection"]
        print("odd keys and several pages:", found["records"], "records")
    for what, says, target, env in [
        ("wrong secret", "secret access key is wrong", url, {"AWS_SECRET_ACCESS_KEY": "wrong"}),
        ("wrong key", "does not know the access key", url, {"AWS_ACCESS_KEY_ID": "wrong"}),
        ("missing bucket", "there is no bucket", "s3://no-such-bucket/x", {}),
        ("empty prefix", "there are no files", f"s3://{bucket()}/no/such/prefix", {}),
        ("no server", "cannot be reached", url, {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}),
    ]:
        done = run(infeed, "inspect", target, **env)
        assert done.returncode != 0 and says in done.stderr, (what, done.stderr)
        print(f"{what}: {done.stderr.strip().splitlines()[-1]}")


def boto(kind, count, in_flight):
    s3 = client()
    keys = [o["Key"] for o in s3.list_objects_v2(Bucket=bucket(), Prefix=f"rates/{kind}/")["Contents"]]

    def read(i):
        more = {}
        if kind == "ranges":
            start = i // len(keys) * RANGE % LARGE
            more["Range"] = f"bytes={start}-{start + RANGE - 1}"
        return len(s3.get_object(Bucket=bucket(), Key=keys[i % len(keys)], **more)["Body"].read())

    return threads(read, count, in_flight)


def crt(kind, count, in_flight):
    from s3torchconnectorclient._mountpoint_s3_client import MountpointS3Client

    s3 = MountpointS3Client(os.environ["AWS_REGION"], endpoint=os.environ["AWS_ENDPOINT_URL"], force_path_style=True)
    keys = [o["Key"] for o in client().list_objects_v2(Bucket=bucket(), Prefix=f"rates/{kind}/")["Contents"]]

    def read(i):
        if kind == "ranges":
            start = i // len(keys) * RANGE % LARGE
            stream = s3.get_object(bucket(), keys[i % len(keys)], start=start, end=start + RANGE)
        else:
            stream = s3.get_object(bucket(), keys[i % len(keys)])
        return sum(len(part) for part in stream)

    return threads(read, count, in_flight)


def threads(read, count, in_flight):
    used = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    with concurrent.futures.ThreadPoolExecutor(in_flight) as pool:
        list(pool.map(read, range(in_flight)))
        before, start = used(), time.monotonic()
        got = sum(pool.map(read, range(count)))
        return {"requests": count, "bytes": got, "seconds": time.monotonic() - start, "cpu_seconds": used() - before}


def measure(who, kind, count, in_flight, rates):
    """Each in a process of its own."""
    if who in ("boto3", "s3torchconnector"):
        command = [sys.executable, __file__, "--one", f"{who} {kind} {count} {in_flight}"]
        env = os.environ
    else:
        command = [*shlex.split(rates), "--one", who, kind, str(count), str(in_flight)]
        env = {**os.environ, "INFEED_S3_URL": f"s3://{bucket()}/rates/{kind}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    line = next((line for line in done.stdout.splitlines() if "RATE {" in line), None)
    if line is None:
        return None, (done.stderr.strip().splitlines() or ["no output"])[-1]
    return json.loads(line[line.index("{"):]), None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infeed", help="the binary: checks the promises")
    parser.add_argument("--rates", help="the bench `requests`, or a command of cargo that runs it: measures")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", type=int, default=500, help="objects of 107 KB")
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        who, kind, count, in_flight = args.one.split()
        print("RATE", json.dumps({"boto3": boto, "s3torchconnector": crt}[who](kind, int(count), int(in_flight))))
        return
    if args.infeed:
        accept(args.infeed)
    if not args.rates:
        return
    upload(args.small, 4)
    for kind, count, in_flight in [("small", args.requests, 16), ("ranges", 96, 8)]:
        figures = {}
        for number in range(args.rounds):
            everyone = ["object_store", "infeed", "s3torchconnector", "boto3"]
            # Each round another one begins.
            for who in everyone[number % 4:] + everyone[:number % 4]:
                few = count if who != "boto3" or kind == "ranges" else count // 4
                figure, wrong = measure(who, kind, few, in_flight, args.rates)
                if wrong:
                    print(f"{who}: {wrong}", file=sys.stderr)
                else:
                    figures.setdefault(who, []).append(figure)
        print(f"\n{kind}, {in_flight} in flight\n\n| client | requests/s | MB/s | client CPU-s per GB |\n|---|---|---|---|")
        for who, of in figures.items():
            def cell(value, form):
                values = sorted(value(f) for f in of)
                return f"{statistics.median(values):{form}} ({values[0]:{form}} to {values[-1]:{form}})"
            print("|", who, "|", cell(lambda f: f["requests"] / f["seconds"], ",.0f"), "|",
                  cell(lambda f: f["bytes"] / f["seconds"] / 1e6, ",.0f"), "|",
                  cell(lambda f: f["cpu_seconds"] / (f["bytes"] / 1e9), ".2f"), "|")


if __name__ == "__main__":
    main()
