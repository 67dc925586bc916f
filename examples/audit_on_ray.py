"""An audit by a Ray cluster: the same answer, to the byte, as by the threads of one machine.

    python examples/audit_on_ray.py /tmp/ray

Here the cluster is one of this machine, begun and ended with the audit. One that is there already is named by
`RayEngine(address="HOST:6379")`; sources are then URLs, or folders that every machine has in the same place. Workers
write nothing, so they need no folder in common, and one that dies costs the part that it was at. As commands:

    dataguard audit /tmp/ray/M.parquet -o /tmp/ray/here --engine ray
    dataguard audit /tmp/ray/M.parquet -o /tmp/ray/there --engine ray --ray-address HOST:6379

Printed is what each engine found, the worst shard, and whether all files of both audits are equal.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from texts import pieces_of_python, write_shard

from dataguard.audit import AuditRequest, LocalEngine, RayEngine, run_audit
from dataguard.corpus import build_manifest_file
from dataguard.gate import load_policy


def write_corpus(folder: Path) -> Path:
    """Eight shards of text, one of which repeats itself, and their manifest."""
    pieces = pieces_of_python(3200)
    documents = ["".join(pieces[i : i + 8]) for i in range(0, len(pieces), 8)]
    for shard in range(8):
        bad = ["spam and eggs " * 36] * 20 if shard == 3 else []
        write_shard(folder / "python" / f"part-{shard}.jsonl", documents[shard::8] + bad)
    build_manifest_file([f"python={folder / 'python'}"], folder / "M.parquet")
    return folder / "M.parquet"


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file of a folder."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def main(out: Path) -> None:
    """Audit a corpus twice."""
    manifest = write_corpus(out)
    for name, engine in {"threads": LocalEngine(), "ray": RayEngine()}.items():
        # What is sent at a time: 8 MiB of content where nothing is said, of this small corpus two shards.
        request = AuditRequest(paths=(str(manifest),), out=out / name, policy=load_policy("default"), task_bytes=80_000)
        summary = run_audit(request, engine)
        print(f"{name}: {summary.account.scored:,} records scored, verdict {summary.verdict}")
    print("; ".join(summary.reasons))
    print("the worst shard is", summary.worst_shards[0].shard)
    equal = contents(out / "threads") == contents(out / "ray")
    print("both audits are equal to the byte" if equal else "THE AUDITS DIFFER")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    main(parser.parse_args().out)
