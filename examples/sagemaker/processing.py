#!/usr/bin/env python3
"""Packs a dataset in a SageMaker processing job of several hosts:

    python3 processing.py --image IMAGE --role ROLE --url s3://BUCKET/raw --out s3://BUCKET/packed --hosts 8 -- --shorter 256

What follows -- goes to `infeed prepare`. Each host takes its share of the shards: rank and world size are from
/opt/ml/config/resourceconfig.json, which is there without any toolkit. The program reads and writes the bucket itself, so the
job has no inputs and outputs, and nothing is copied before it begins. A job that broke off is started again with the same
settings, and finds the shards that are finished; hosts need not finish together.

IMAGE is one with `infeed` in it (python/README.md; the package brings the command line). Needs boto3 and the right to create
processing jobs; --dry-run prints the request instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any


def request(options: argparse.Namespace, prepare: list[str]) -> dict[str, Any]:
    return {
        "ProcessingJobName": f"infeed-prepare-{time.strftime('%Y%m%d-%H%M%S')}",
        "RoleArn": options.role,
        "AppSpecification": {
            "ImageUri": options.image,
            "ContainerEntrypoint": ["infeed", "prepare"],
            "ContainerArguments": [options.url, options.out, *prepare],
        },
        "ProcessingResources": {
            "ClusterConfig": {
                "InstanceType": options.instance,
                "InstanceCount": options.hosts,
                # Shards are written on their way, not to this disk.
                "VolumeSizeInGB": 30,
            }
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": options.hours * 3600},
    }


def main() -> None:
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", required=True, help="the container in ECR")
    parser.add_argument("--role", required=True, help="ARN of the role that reads and writes the bucket")
    parser.add_argument("--url", required=True, help="the dataset")
    parser.add_argument("--out", required=True, help="bucket and prefix for the shards")
    parser.add_argument("--instance", default="ml.c7i.4xlarge")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--hours", type=int, default=4)
    parser.add_argument("--dry-run", action="store_true", help="print the request, and start nothing")
    options = parser.parse_args(given[:cut])
    job = request(options, given[cut + 1:])
    if options.dry_run:
        print(json.dumps(job, indent=2))
        return
    import boto3

    boto3.client("sagemaker").create_processing_job(**job)
    name = job["ProcessingJobName"]
    print(f"started {name}; follow it with: aws logs tail /aws/sagemaker/ProcessingJobs --follow --log-stream-name-prefix {name}")


if __name__ == "__main__":
    main()
