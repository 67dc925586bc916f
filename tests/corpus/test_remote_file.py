"""Storage that does not answer is storage that failed, whatever its library raises, and is asked again."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from dataguard.corpus.build import build_manifest_file
from dataguard.corpus.corpus import Corpus
from dataguard.corpus.problems import RowProblem
from dataguard.corpus.remote_file import RemoteFile, storage_errors
from dataguard.corpus.storage import RemoteRoot
from dataguard.errors import ShardDamaged


class ClientError(Exception):
    """As a client has them: no OSError."""


class Failing(io.BytesIO):
    failures = 0

    def read(self, *size: Any) -> bytes:
        if Failing.failures > 0:
            Failing.failures -= 1
            raise ClientError("nobody listens")
        return super().read(*size)


def test_a_file_is_the_file_that_it_wraps() -> None:
    file = RemoteFile(io.BytesIO(b"0123456789"))
    assert (file.read(3), file.tell()) == (b"012", 3)
    assert (file.seek(-2, io.SEEK_END), file.read()) == (8, b"89")
    buffer = bytearray(b"....")
    file.seek(7)
    assert (file.readinto(buffer), bytes(buffer)) == (3, b"789.")
    file.close()
    assert file.closed


def test_what_is_no_trouble_of_storage_passes() -> None:
    for error in (FileNotFoundError(2, "gone"), ShardDamaged("bad"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, storage_errors():
            raise error
        assert raised.value is error
    with pytest.raises(ConnectionError, match=r"^the store \(ClientError: no\)$"), storage_errors("the store"):
        raise ClientError("no")


@pytest.mark.parametrize(("failures", "kind"), [(0, None), (3, None), (1000, "unreadable")])
def test_a_client_that_gives_up_is_asked_again_and_then_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, kind: str | None
) -> None:
    import fsspec

    system = fsspec.filesystem("memory")
    system.pipe_file("/remote-file/a.jsonl", b'{"text": "one"}\n{"text": "two"}\n')
    try:
        build_manifest_file(["memory://remote-file"], tmp_path / "M", num_workers=1)
        real = RemoteRoot._system

        def opened(self: RemoteRoot) -> Any:
            found = real(self)
            monkeypatch.setattr(found, "open", lambda path, *_a, **_b: Failing(system.cat_file(path)), raising=False)
            return found

        monkeypatch.setattr(RemoteRoot, "_system", opened)
        Failing.failures = failures
        with Corpus.open(tmp_path / "M").reader(cache_folder="", sleep=lambda _: None) as reader:
            (found,) = reader.read([0], [1])
        if kind is None:
            assert found == b"two"
        else:
            assert isinstance(found, RowProblem)
            assert (found.kind, "nobody listens" in found.detail) == (kind, True)
    finally:
        Failing.failures = 0
        system.rm("/remote-file", recursive=True)
