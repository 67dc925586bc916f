"""A Ray cluster of two workers on the loopback: ``python -m tests.audit.ray_cluster FOLDER``.

Says its address, and ends when its standard input does.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.processes import environment

NUM_WORKERS = 2


@contextmanager
def ray_environment() -> Iterator[dict[str, str]]:
    """What processes of a cluster and its drivers are told; sessions lie in a folder of a short name, for sockets."""
    folder = tempfile.mkdtemp(prefix="dg-", dir="/tmp")
    try:
        yield environment(
            RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
            RAY_USAGE_STATS_ENABLED="0",
            RAY_AUTH_MODE="disabled",
            RAY_TMPDIR=folder,
            RAY_ADDRESS=None,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def cluster(env: dict[str, str]) -> Iterator[str]:
    """A cluster while the block goes on; its address."""
    words = [sys.executable, "-m", "tests.audit.ray_cluster"]
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address, "a cluster begins"
            yield address
        finally:
            process.stdin.close()
            try:
                process.wait(60)
            finally:
                process.kill()


def _main() -> None:
    import ray

    ray.init(
        address="local",
        num_cpus=NUM_WORKERS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100 << 20,
    )
    os.write(1, f"{ray.get_runtime_context().gcs_address}\n".encode())
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    _main()
