"""Looks at Kubernetes manifests by the JSON schemas that kubernetes-validate has, strictly, and prints them as JSON.

    check_manifest.py FILE...
"""

from __future__ import annotations

import json
import sys

import kubernetes_validate
import yaml


def main() -> None:
    found = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            found += [manifest for manifest in yaml.safe_load_all(file) if manifest]
    for manifest in found:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
