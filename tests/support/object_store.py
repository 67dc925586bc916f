"""An S3 API on loopback, empty whoever used one before: moto keeps its buckets for the process, not for the server."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["environment_of", "object_store"]


@contextmanager
def object_store() -> Iterator[tuple[str, int]]:
    """Host and port of a server without buckets, which ends with the context."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        urllib.request.urlopen(f"http://{host}:{port}/moto-api/reset", data=b"", timeout=60).close()
        yield host, port
    finally:
        server.stop()


def environment_of(endpoint: str) -> dict[str, str]:
    """What the environment has to say for s3fs and boto3 to speak to this endpoint and to nothing else."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
