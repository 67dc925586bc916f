"""Arrow data that other tools wrote: what is good equals what Arrow's own reader gives, through the manifest too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dataguard.corpus import Corpus, build_manifest_file
from dataguard.corpus.formats.arrow import ArrowIpc
from dataguard.corpus.formats.protocol import ScanOptions
from tests.corpus.formats.support import MemoryShard, look


def _by_arrow(content: bytes) -> pa.Table:
    return (pa.ipc.open_file if content[:6] == b"ARROW1" else pa.ipc.open_stream)(content).read_all()


def _expected(table: pa.Table, path: str) -> list[bytes | None]:
    name, *members = path.split(".")
    column = table.column(name)
    for member in members:
        column = pc.struct_field(column, member)
    values: list[Any] = ["\n".join(value) if isinstance(value, list) else value for value in column.to_pylist()]
    return [value.encode() if isinstance(value, str) else value for value in values]


CASES = [
    ("arrow/*/generated_dictionary.*", ["dict0", "dict1"]),
    ("arrow/*/generated_nested.*", ["struct_nullable.f2"]),
    ("arrow/*/generated_primitive*", ["utf8_nullable", "utf8_nonnullable"]),
    ("arrow/compression/generated_lz4.*", ["strs"]),
    ("arrow/compression/generated_zstd.*", ["strs"]),
    ("arrow/compression/generated_uncompressible*", ["strings"]),
    ("hf_save_to_disk/ai2_arc/**/*.arrow", ["question", "choices.text"]),
    ("hf_save_to_disk/allenai/**/*.arrow", ["question", "choices.text"]),
    ("hf_save_to_disk/boolq/**/*.arrow", ["passage"]),
    ("hf_save_to_disk/hails/**/*.arrow", ["question", "choices"]),
]


@pytest.mark.parametrize(("pattern", "fields"), CASES, ids=[case[0] for case in CASES])
def test_a_good_file_gives_what_arrow_reads(shared: Path, tmp_path: Path, pattern: str, fields: list[str]) -> None:
    paths = sorted((shared / "data" / "formats").glob(pattern))
    assert paths
    for path in paths:
        table = _by_arrow(path.read_bytes())
        for field in fields:
            target = tmp_path / "M.parquet"
            result, _ = build_manifest_file([f"web={path}"], target, options=ScanOptions(text_field=field))
            (shard,) = result.manifest.shards
            assert (shard.format, shard.effect) == ("arrow", "clean")
            expected = _expected(table, field)
            assert shard.num_rows == len(expected) == table.num_rows
            blocks, rows = [], []
            for number, block in enumerate(result.manifest.blocks):
                for row in range(block["first_row"], block["first_row"] + block["num_rows"]):
                    blocks.append(number)
                    rows.append(row)
            with Corpus.open(target).reader(cache_folder="") as reader:
                answers = [None if not isinstance(answer, bytes) else answer for answer in reader.read(blocks, rows)]
            assert answers == expected, (path.name, field)


def test_a_broken_file_is_no_crash_and_no_clean_pass(shared: Path) -> None:
    paths = sorted((shared / "data" / "broken" / "arrow").iterdir())
    assert paths
    for path in paths:
        content = path.read_bytes()
        try:
            table = _by_arrow(content)
            table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError):
            table = None
        for field in ("text", "foo", "bar", "baz", "utf8_nullable", "struct_nullable.f2", "dict0"):
            seen = look(ArrowIpc(), MemoryShard(content, path.name, "none"), text_field=field)
            if seen.effect == "clean":
                assert table is not None, path.name
                assert seen.rows == _expected(table, field)
            else:
                assert seen.codes
