"""An audit of an object store: a real S3 API on this machine, behind a line that fails now and then."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.audit.making import SMALL, audit, corpus, signals

for _name in ("s3fs", "moto", "flask", "flask_cors"):
    pytest.importorskip(_name, reason=f"{_name} is not installed; it comes with dataguard[test]")


@dataclass
class Line:
    """The way to the server, and what goes wrong on it."""

    server: tuple[str, int]
    fails: bool = False
    gone: bool = False
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
                if line.gone or (line.fails and len(line.reads) % 3 == 0):
                    line.failures.append(self.path)
                    if line.gone or len(line.failures) % 2:
                        # what is refused is not asked for again by the client, what is too fast is
                        status, code = (403, "AccessDenied") if line.gone else (503, "SlowDown")
                        content = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
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


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Line]:
    import boto3
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    made = Line(server=server.get_host_and_port())
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(made))
    proxy.daemon_threads = True
    Thread(target=proxy.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{proxy.server_address[1]}"
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="data")
    folder = corpus(tmp_path / "in")
    for path in folder.rglob("*.*"):
        client.upload_file(str(path), "data", str(path.relative_to(folder)))
    client.close()
    yield made
    s3fs.S3FileSystem.clear_instance_cache()
    proxy.shutdown()
    proxy.server_close()
    server.stop()


def test_a_line_that_fails_now_and_then_changes_nothing(line: Line, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    local = audit(tmp_path / "local", folder / "web", folder / "ids", task_bytes=SMALL)
    line.fails = True
    far = audit(tmp_path / "far", "s3://data/web", "s3://data/ids", task_bytes=SMALL, workers=2)
    assert len(line.failures) >= 2
    assert far == local
    assert signals(tmp_path / "far").equals(signals(tmp_path / "local"))


def test_a_line_that_refuses_makes_records_unreadable_and_no_pass(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataguard.corpus.build import build_manifest_file

    monkeypatch.setattr("time.sleep", lambda _: None)
    build_manifest_file(["s3://data/ids"], tmp_path / "M")
    line.gone = True
    summary = audit(tmp_path / "out", tmp_path / "M")
    assert (summary.verdict, summary.exit_code) == ("nothing", 3)
    account = summary.account
    assert account.balanced
    assert account.records == account.unreadable > 0
    assert [shard.codes for shard in summary.shards.damaged] == [("unreadable",)]
