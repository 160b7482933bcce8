#!/usr/bin/env python3
"""Starts the training job:

    python3 launch.py --image IMAGE --role ROLE --bucket BUCKET [--stream] [--hosts 4]

With --stream the job reads s3:// itself; without it the channel `train` is a FastFile mount of the same objects. Of several
hosts each takes its share: rank and world size are from /opt/ml/input/config/resourceconfig.json. Needs boto3 and the right to
create training jobs; --dry-run prints the request instead.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any


def request(options: argparse.Namespace) -> dict[str, Any]:
    url = f"s3://{options.bucket}/{options.prefix}"
    name = f"infeed-caltech256-{time.strftime('%Y%m%d-%H%M%S')}"
    job: dict[str, Any] = {
        "TrainingJobName": name,
        "AlgorithmSpecification": {"TrainingImage": options.image, "TrainingInputMode": "FastFile"},
        "RoleArn": options.role,
        "HyperParameters": {"epochs": str(options.epochs)},
        "OutputDataConfig": {"S3OutputPath": f"s3://{options.bucket}/output"},
        "CheckpointConfig": {"S3Uri": f"s3://{options.bucket}/checkpoints/{name}", "LocalPath": "/opt/ml/checkpoints"},
        "ResourceConfig": {"InstanceType": options.instance, "InstanceCount": options.hosts, "VolumeSizeInGB": 30},
        # Spot: SageMaker sends SIGTERM, restarts the job later and restores the checkpoints.
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 24 * 3600, "MaxWaitTimeInSeconds": 48 * 3600},
    }
    if options.stream:
        job["HyperParameters"]["data"] = url
        return job
    # Whole on each host, which takes its share of the records. With ShardedByS3Key each host has a part already, and would
    # share that among its own processes alone.
    source = {"S3DataType": "S3Prefix", "S3Uri": url, "S3DataDistributionType": "FullyReplicated"}
    job["InputDataConfig"] = [{"ChannelName": "train", "DataSource": {"S3DataSource": source}, "InputMode": "FastFile"}]
    return job


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", required=True, help="the container in ECR")
    parser.add_argument("--role", required=True, help="ARN of the role that reads the bucket")
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--prefix", default="caltech256/256_ObjectCategories", help="class folders below it")
    parser.add_argument("--instance", default="ml.c7i.4xlarge")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--stream", action="store_true", help="read s3:// from the program, without a channel")
    parser.add_argument("--dry-run", action="store_true", help="print the request, and start nothing")
    options = parser.parse_args()
    job = request(options)
    if options.dry_run:
        print(json.dumps(job, indent=2))
        return
    import boto3

    boto3.client("sagemaker").create_training_job(**job)
    name = job["TrainingJobName"]
    print(f"started {name}; follow it with: aws logs tail /aws/sagemaker/TrainingJobs --follow --log-stream-name-prefix {name}")


if __name__ == "__main__":
    main()
