"""Builds manifests of hub datasets in a process of its own, whose hub is the one of its environment.

Standard input: a JSON list of lists of sources. Standard output: a JSON list of what each gave.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from dataguard.corpus import Corpus, build_manifest_file
from dataguard.corpus.manifest_read import read_header
from dataguard.errors import DataguardError


def ask(sources: list[str], target: Path) -> dict[str, Any]:
    try:
        result, _ = build_manifest_file(sources, target, num_workers=1)
    except DataguardError as error:
        return {"exit": error.exit_code, "error": str(error)}
    manifest = result.manifest
    with Corpus.open(target).reader(cache_folder="") as reader:
        texts = []
        for number, block in enumerate(manifest.blocks):
            rows = range(block["first_row"], block["first_row"] + block["num_rows"])
            texts += [str(answer, "utf-8") for answer in reader.read([number] * len(rows), list(rows))]
    return {
        "exit": 0,
        "digest": manifest.digest,
        "sources": {source.name: [source.root, source.revision] for source in read_header(target).sources},
        "shards": [manifest.shard_name(i) for i in range(len(manifest.shards))],
        "damaged": result.num_damaged,
        "texts": texts,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asked = json.loads(sys.stdin.read())
        print(json.dumps([ask(sources, Path(folder, f"{i}.parquet")) for i, sources in enumerate(asked)]))
