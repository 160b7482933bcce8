"""Kinds of buckets at AWS itself: each is made, read with infeed, compared with a local folder, and removed. See aws.md."""

import argparse
import base64
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import boto3
from botocore.exceptions import ClientError

RUN = ["--shuffle", "7", "--batch-size", "5", "--checksum", "--json", "-"]


class Tries:
    def __init__(self, infeed: str, region: str):
        self.infeed, self.region, self.wrong = infeed, region, 0

    def call(self, *args: str, **variables: str) -> subprocess.CompletedProcess:
        env = {**os.environ, "AWS_REGION": self.region, "INFEED_MANIFEST_DIR": "off", **variables}
        return subprocess.run([self.infeed, *args], env=env, capture_output=True, text=True, check=False)

    def tell(self, kind: str, right: bool, words: str) -> None:
        self.wrong += not right
        print(f"{'ok   ' if right else 'WRONG'} {kind}: {words}", flush=True)

    def checksum(self, url: str, **variables: str) -> str:
        done = self.call("run", url, *RUN, **variables)
        return json.loads(done.stdout)["checksum"] if done.returncode == 0 else done.stderr.strip()[-300:]

    def same(self, kind: str, url: str, local: str, **variables: str) -> None:
        """The samples are those of the local folder; what `inspect` says of the endpoint is told."""
        seen = self.call("inspect", url, **variables)
        endpoint = next((line.strip() for line in seen.stdout.splitlines() if "amazonaws" in line), "no endpoint shown")
        found = self.checksum(url, **variables)
        self.tell(kind, found == local, f"{endpoint}; checksum {found}")

    def refused(self, kind: str, url: str, **variables: str) -> None:
        done = self.call("run", url, *RUN, **variables)
        self.tell(kind, done.returncode != 0, f"refused: {done.stderr.strip()[-200:]}")

    def staged(self, kind: str, url: str, local: str, into: Path, **variables: str) -> None:
        done = self.call("stage", url, str(into), **variables)
        found = self.checksum(str(into)) if done.returncode == 0 else done.stderr.strip()[-300:]
        self.tell(kind, found == local, f"staged; checksum {found}")


def put(s3, bucket: str, folder: Path, prefix: str, **more: str) -> None:
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        s3.put_object(Bucket=bucket, Key=f"{prefix}/{file.relative_to(folder)}", Body=file.read_bytes(), **more)


def remove(s3, bucket: str) -> None:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    for key in [found["Key"] for page in pages for found in page.get("Contents", [])]:
        s3.delete_object(Bucket=bucket, Key=key)
    s3.delete_bucket(Bucket=bucket)


def general(tries: Tries, s3, bucket: str, folder: Path, local: str, work: Path) -> None:
    put(s3, bucket, folder, "photos")
    url = f"s3://{bucket}/photos"
    tries.same("general, path style", url, local)
    tries.same("general, before the host", url, local, AWS_S3_ADDRESSING_STYLE="virtual")
    tries.same("dual-stack", url, local, AWS_USE_DUALSTACK_ENDPOINT="true")
    if tries.region.startswith(("us-", "ca-")):
        tries.same("FIPS", url, local, AWS_USE_FIPS_ENDPOINT="true")
    tries.staged("general, staged", url, local, work / "staged")

    kms = {"AWS_SSE_KMS_KEY_ID": "alias/aws/s3"}
    done = tries.call("prepare", str(folder), f"s3://{bucket}/kms", "-q", **kms)
    keys = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket, Prefix="kms/").get("Contents", [])]
    how = {s3.head_object(Bucket=bucket, Key=key).get("ServerSideEncryption") for key in keys}
    tries.tell("SSE-KMS, written", done.returncode == 0 and how == {"aws:kms"}, f"{len(keys)} objects, {how}")
    found = tries.checksum(f"s3://{bucket}/kms")
    tries.tell("SSE-KMS, read", len(found) < 64, f"checksum {found}")

    key = secrets.token_bytes(32)
    customer = {"AWS_SSE_CUSTOMER_KEY_BASE64": base64.b64encode(key).decode()}
    # New buckets refuse keys of customers until they are told otherwise.
    allowed = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BlockedEncryptionTypes": {"EncryptionType": ["NONE"]}}
    try:
        s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [allowed]})
        put(s3, bucket, folder, "customer", SSECustomerAlgorithm="AES256", SSECustomerKey=key)
    except ClientError as error:
        print(f"left  SSE-C: this bucket takes none ({error})")
        return
    tries.same("SSE-C", f"s3://{bucket}/customer", local, **customer)
    tries.refused("SSE-C without the key", f"s3://{bucket}/customer")


def point(tries: Tries, control, account: str, bucket: str, local: str) -> None:
    name = f"{bucket}-ap"
    made = control.create_access_point(AccountId=account, Name=name, Bucket=bucket)
    try:
        time.sleep(10)  # An access point is not everywhere at once.
        tries.same("access point, alias", f"s3://{made['Alias']}/photos", local)
        tries.same("access point, ARN", f"s3://{made['AccessPointArn']}/photos", local)
    finally:
        control.delete_access_point(AccountId=account, Name=name)


def directory(tries: Tries, s3, bucket: str, zone: str, folder: Path, local: str, work: Path) -> None:
    kind = {"Type": "LocalZone" if zone.count("-") > 1 else "AvailabilityZone", "Name": zone}
    made = {"Location": kind, "Bucket": {"Type": "Directory", "DataRedundancy": "SingleAvailabilityZone"}}
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration=made)
    try:
        put(s3, bucket, folder, "photos")
        tries.same("directory bucket", f"s3://{bucket}/photos", local)
        tries.staged("directory bucket, staged", f"s3://{bucket}/photos", local, work / "staged-express")
        done = tries.call("prepare", str(folder), f"s3://{bucket}/shards", "-q")
        found = tries.checksum(f"s3://{bucket}/shards")
        tries.tell("directory bucket, written", done.returncode == 0 and len(found) < 64, f"checksum {found}")
    finally:
        remove(s3, bucket)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--infeed", default="infeed", help="the binary")
    parser.add_argument("--region", default="us-west-2")
    parser.add_argument("--zone", default="usw2-az1", help="of the directory bucket; `off` leaves it out")
    args = parser.parse_args()
    s3 = boto3.client("s3", region_name=args.region)
    control = boto3.client("s3control", region_name=args.region)
    account = boto3.client("sts", region_name=args.region).get_caller_identity()["Account"]
    tries = Tries(args.infeed, args.region)
    name = f"infeed-try-{secrets.token_hex(4)}"
    print(f"buckets begin with {name}; they are removed at the end")
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        folder = work / "photos"
        tries.call("synth", "imagenet", str(folder), "--count", "40", "--classes", "4", "--seed", "5")
        local = tries.checksum(str(folder))
        print(f"local folder: checksum {local}")
        where = {} if args.region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": args.region}}
        s3.create_bucket(Bucket=name, **where)
        try:
            general(tries, s3, name, folder, local, work)
            point(tries, control, account, name, local)
        finally:
            remove(s3, name)
        if args.zone != "off":
            directory(tries, s3, f"{name}--{args.zone}--x-s3", args.zone, folder, local, work)
    print(f"{tries.wrong} wrong")
    return min(tries.wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
