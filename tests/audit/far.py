"""A real S3 API on this machine, behind a line that fails now and then."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.support.object_store import environment_of, object_store


@dataclass
class Line:
    """The way to the server, and what goes wrong on it."""

    server: tuple[str, int]
    fails: bool = False
    """Whether every fifth read fails, once, by an answer or in the midst of one."""
    refused: str = ""
    """What is in the path of reads that are refused; nothing where it is empty."""
    reads: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def handler_of(line: Line) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            """Nobody reads it."""

        def _forward(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            connection = http.client.HTTPConnection(*line.server)
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            status, cut, headers = answer.status, len(content), answer.getheaders()
            if self.command == "GET" and "list-type" not in self.path and self.path.count("/") > 1:
                line.reads.append(self.path)
                is_refused = bool(line.refused) and line.refused in self.path
                read = f"{self.path} {self.headers.get('Range')}"
                is_next = line.fails and len(line.reads) % 5 == 0 and read not in line.failures
                if is_refused or is_next:
                    line.failures.append(read)
                    if is_refused or len(line.failures) % 2:
                        # what is refused is not asked for again by the client, what is too fast is
                        status, code = (403, "AccessDenied") if is_refused else (503, "SlowDown")
                        content = f"<Error><Code>{code}</Code><Message>{code} by the test</Message></Error>".encode()
                        cut, headers = len(content), [("Content-Type", "application/xml")]
                    else:
                        cut = len(content) // 2  # the connection breaks off in the midst of the body
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in {"content-length", "transfer-encoding", "connection", "date", "server"}:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length or "0")
            if cut < len(content):
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[:cut])

    for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._forward)
    return Handler


@contextmanager
def bucket_behind(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Line]:
    """``s3://data`` with the files of a folder while the block goes on, for this process and those it starts."""
    import boto3
    import s3fs

    with object_store() as server:
        made = Line(server=server)
        proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(made))
        proxy.daemon_threads = True
        Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            endpoint = f"http://127.0.0.1:{proxy.server_address[1]}"
            for name, value in environment_of(endpoint).items():
                monkeypatch.setenv(name, value)
            client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
            client.create_bucket(Bucket="data")
            for path in folder.rglob("*.*"):
                client.upload_file(str(path), "data", str(path.relative_to(folder)))
            client.close()
            yield made
        finally:
            s3fs.S3FileSystem.clear_instance_cache()
            proxy.shutdown()
            proxy.server_close()
