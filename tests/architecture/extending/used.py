"""What the test runs in a copy of the tree to which the three were added: each is used as its users would."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

import dataguard
from dataguard import Corpus, score_text, score_tokens
from dataguard.cli.main import main
from dataguard.gate.gate import Gate
from dataguard.gate.policy import read_policy
from dataguard.run.logs import read_log
from dataguard.triage.detect import spikes


def use(folder: Path) -> None:
    """All of them, in the copy that lies in a folder."""
    assert Path(dataguard.__file__).is_relative_to(folder), "the copy is what is tried"

    # A format: found by its content, scanned, read; and one of its records is rejected and told.
    (folder / "web").mkdir()
    (folder / "web" / "a.txt").write_bytes(b"%STANZAS\none\nand a half\n\ntwo\n\n\xff\n")
    assert main(["manifest", "build", f"web={folder / 'web'}", "-o", str(folder / "M.parquet")]) == 0
    corpus = Corpus.open(str(folder / "M.parquet"))
    assert [shard.format for shard in corpus.manifest.shards] == ["stanzas"]
    assert corpus.manifest.num_deliverable.tolist() == [2]
    with corpus.reader() as reader:
        rows = reader.read([0, 0], [1, 0])
    assert rows == [b"two", b"one\nand a half"], rows

    # A signal of text, alone and beside others; in a policy, by a gate.
    table = score_text(pa.array(["aabb", None, "xyz"]), ["vowel_fraction"])
    assert table.to_pydict() == {"vowel_fraction": [0.5, None, 0.0]}, table
    text = '[[rules]]\nname = "v"\nsignal = "vowel_fraction"\nbelow = 0.1\naction = "flag"'
    gate = Gate(read_policy(text, name="p"), source_names=["web"], also=())
    values, offsets = np.frombuffer(b"aabbxyz", dtype=np.uint8), np.array([0, 4, 7])
    judged = gate.judge_texts(values, offsets, np.zeros(2, dtype=np.int32))
    assert judged.verdict.tolist() == [0, 1], judged.verdict

    # A signal of tokens, of those that count.
    tokens = score_tokens([[1, 2, 3, 4], [5, 6, 7, 8]], mask=[[1, 1, 1, 0]] * 2, signals=["last_token"])
    assert tokens.to_pydict() == {"last_token": [3, 7]}, tokens

    # A rule of a detector, on a log.
    log = folder / "log.csv"
    log.write_text("step,loss\n" + "".join(f"{step},{6.0 if step == 7 else 2.5}\n" for step in range(40)))
    answer = spikes(read_log(log), profile="doubling")
    print(json.dumps({"events": [[event.start, event.stop] for event in answer.events]}))


if __name__ == "__main__":
    use(Path(sys.argv[1]))
