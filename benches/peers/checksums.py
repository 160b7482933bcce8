#!/usr/bin/env python3
"""What it costs to compare photographs of a store with their MD5s: several builds and settings of infeed, in turns.

    python3 benches/peers/checksums.py FOLDER 'target/release/infeed' 'target/release/infeed --verify checksums' …

Serves FOLDER from this process over https as a bucket whose ETags are MD5s and that sends no other checksum. Each command
reads all of it with `run`, eight epochs in random order, and is measured by its own processor time. The first is the one the
others are compared with. Needs `openssl`, for a certificate.
"""

import json
import resource
import shlex
import ssl
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integration" / "launchers"))
from store import Store  # noqa: E402

ROUNDS = 9
RUN = ("--batch-size", "64", "--epochs", "8", "--shuffle", "1", "--seed", "1", "--checksum", "--json", "-")


def with_tls(store: Store, folder: Path) -> dict[str, str]:
    """The environment for readers, over TLS from here on."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-addext", "basicConstraints=critical,CA:FALSE"]
    command = ["openssl", "req", *kind, *names, "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    # The threads of the connections shake hands.
    store.server.socket = context.wrap_socket(store.server.socket, server_side=True, do_handshake_on_connect=False)
    endpoint = f"https://127.0.0.1:{store.server.server_port}"
    return {**store.environment, "AWS_ENDPOINT_URL": endpoint, "AWS_CA_BUNDLE": str(certificate)}


def main() -> None:
    store = Store(Path(sys.argv[1]), "photographs")
    folder = tempfile.TemporaryDirectory()
    environment = with_tls(store, Path(folder.name))
    commands = sys.argv[2:]
    cost: dict[str, list[float]] = {command: [] for command in commands}
    sums = set()
    for number in range(ROUNDS + 1):
        for command in commands:
            binary, *options = shlex.split(command)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run = subprocess.run(
                [binary, "run", store.url, *RUN, *options], env=environment, stdout=subprocess.PIPE, check=True
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            report = json.loads(run.stdout)
            sums.add(report["checksum"])
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            # The first round fills the system's caches.
            if number > 0:
                cost[command].append(1e6 * used / report["samples"])
    assert len(sums) == 1, f"the commands read different bytes: {sums}"
    for command in commands:
        ratios = [own / first for own, first in zip(cost[command], cost[commands[0]], strict=True)]
        print(f"{command}: {spread(cost[command], '.0f')} us a sample, {spread(ratios, '.3f')} of the first")


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


if __name__ == "__main__":
    main()
