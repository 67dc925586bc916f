"""A store file is read whole or refused: damage, another's file, another version, a bomb."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import zstandard

from dataguard.core.microbatch import NOTHING
from dataguard.core.safetensors import safetensors_parts
from dataguard.errors import RunDamaged
from dataguard.run import store_file
from dataguard.run.layout import Layout
from dataguard.run.store_file import KeptMicrobatch, encode_store, read_store
from dataguard.run.store_ledger import LetGo, read_let_go, read_settings
from tests.golden.make_store import TEXTS, microbatch
from tests.run.storing import RUN_ID, contents, kept, open_store, put, read

GOLDEN = Path(__file__).parents[1] / "golden" / "store-v1"
WHOSE = {"run": RUN_ID, "attempt": 1, "rank": 0, "step": 9}


def refusal(path: Path, **whose: object) -> str:
    with pytest.raises(RunDamaged) as told:
        read_store(path, **{**WHOSE, **whose})  # type: ignore[arg-type]
    assert str(path) in told.value.asked
    return str(told.value.found)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store = open_store(tmp_path)
    put(store, 9, 2)
    store.close()
    return Layout(tmp_path).store(1, 9, 0)


def test_every_flipped_byte_is_found_or_changes_nothing(path: Path) -> None:
    """A few bits of a zstd header say how large a window to keep, and decide nothing of the content."""
    raw, before = path.read_bytes(), [contents(each) for each in read(path.parents[3], 9)]
    harmless = 0
    for i in range(len(raw)):
        flipped = bytearray(raw)
        flipped[i] ^= 1 << (i % 8)
        path.write_bytes(flipped)
        try:
            again = [contents(each) for each in read(path.parents[3], 9)]
        except RunDamaged:
            continue
        assert again == before
        harmless += 1
    assert harmless <= 2


@pytest.mark.parametrize("cut", [0, 1, 10, 200, -1])
def test_a_file_that_was_cut_is_refused(path: Path, cut: int) -> None:
    path.write_bytes(path.read_bytes()[:cut])
    refusal(path)


def test_what_stands_behind_its_end_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)
    refusal(path)


@pytest.mark.parametrize("other", [{"run": "another"}, {"attempt": 2}, {"rank": 3}, {"step": 8}])
def test_another_file_in_its_place_is_refused(path: Path, other: dict[str, object]) -> None:
    assert "another file in this one's place" in refusal(path, **other)


def test_a_file_that_is_not_there_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path, 9)


def test_what_would_be_too_large_is_never_decompressed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_file, "MOST_BYTES", 100)
    assert "at most 100 are read" in refusal(path)
    bomb = zstandard.ZstdCompressor(write_checksum=True, write_content_size=True).compress(bytes(1 << 24))
    path.write_bytes(bomb)
    assert "16,777,216 bytes" in refusal(path)


@pytest.mark.parametrize("without", ["write_checksum", "write_content_size"])
def test_a_frame_that_does_not_guard_itself_is_refused(path: Path, without: str) -> None:
    content = zstandard.ZstdDecompressor().decompress(path.read_bytes())
    settings = {"write_checksum": True, "write_content_size": True, without: False}
    path.write_bytes(zstandard.ZstdCompressor(**settings).compress(content))
    assert "has no checksum" in refusal(path)


def packed(path: Path, metadata: dict[str, str], tensors: dict[str, object]) -> None:
    content = b"".join(safetensors_parts(tensors, metadata))  # type: ignore[arg-type]
    path.write_bytes(zstandard.ZstdCompressor(write_checksum=True, write_content_size=True).compress(content))


def test_what_it_says_of_itself_must_fit(path: Path) -> None:
    document = {**WHOSE, "version": 1, "microbatches": []}
    packed(path, {}, {})
    assert "have no 'dataguard'" in refusal(path)
    packed(path, {"dataguard": json.dumps({**document, "version": 2})}, {})
    assert "format version 2" in refusal(path)
    packed(path, {"dataguard": json.dumps({**document, "rank": -1})}, {})
    assert ">= 0" in refusal(path)
    packed(path, {"dataguard": json.dumps(document)}, {"microbatch=0/x": kept(0).tensors["input_ids"]})
    assert "belongs to none" in refusal(path)


@pytest.mark.parametrize("change", ["digest", "name", "dtype", "bytes"])
def test_digests_cover_names_dtypes_and_bytes(path: Path, change: str) -> None:
    one = kept(9)
    tensors = dict(one.tensors)
    old = tensors["input_ids"]
    if change == "name":
        tensors["inputs"] = tensors.pop("input_ids")
    elif change == "dtype":
        tensors["input_ids"] = type(old)(dtype="U64", shape=old.shape, data=old.data)
    elif change == "bytes":
        tensors["input_ids"] = type(old)(dtype=old.dtype, shape=old.shape, data=bytes(64))
    changed = KeptMicrobatch(
        microbatch=0,
        form="tensors",
        slots=one.slots,
        made_of=one.made_of,
        digest=bytes(16) if change == "digest" else one.digest,
        tensors=tensors,
    )
    path.write_bytes(encode_store(WHOSE, [changed]))
    assert "has digest" in refusal(path)


# -- the goldens


def golden(form: str, step: int) -> KeptMicrobatch:
    (one,) = read_store(GOLDEN / f"{form}.safetensors.zst", run=RUN_ID, attempt=1, rank=1, step=step)[1]
    return one


@pytest.mark.parametrize(("form", "step"), [("tensors", 9_000), ("records", 9_001), ("ids", 9_002)])
def test_what_version_1_wrote_stays_readable(form: str, step: int) -> None:
    expected = json.loads((GOLDEN / "expected.json").read_text())[form]
    one = golden(form, step)
    assert one.digest.hex() == expected["digest"]
    assert {name: [dtype, list(shape), data.hex()] for name, (dtype, shape, data) in contents(one).items()} == expected[
        "tensors"
    ]


def test_samples_come_out_of_the_goldens_as_they_went_in() -> None:
    records, ids = golden("records", 9_001), golden("ids", 9_002)
    assert records.records() == tuple(text or b"" for text in TEXTS)
    assert records.mask().tolist() == [True, False, True, False]
    assert records.sample_digests() == microbatch(windows=False).digests
    assert ids.sample_digests() == microbatch(windows=True).digests
    assert ids.sample_digests()[1] == NOTHING  # type: ignore[index]
    np.testing.assert_array_equal(ids.ids(), microbatch(windows=True).ids)
    assert golden("tensors", 9_000).sample_digests() is None


def test_settings_and_ledger_of_version_1_stay_readable(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.store_attempt(1).mkdir(parents=True)
    layout.store_settings(1, 1).write_bytes((GOLDEN / "settings.json").read_bytes())
    layout.store_ledger(1, 1).write_bytes((GOLDEN / "ledger.frames").read_bytes())
    settings = read_settings(layout, 1, 1)
    assert settings is not None
    assert (settings.keep, settings.budget_bytes, settings.queue_bytes) == ("last:3", 1_000_000, None)
    records, damage = read_let_go(layout, 1, 1)
    assert (records.tolist(), damage) == ([(8_999, 1, 4_096, LetGo.QUEUE)], ())
    layout.store_settings(1, 2).write_bytes((GOLDEN / "settings.json").read_bytes())
    with pytest.raises(RunDamaged, match="another file in this one's place"):
        read_settings(layout, 1, 2)
