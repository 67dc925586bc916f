"""Which documents does dataguard read and write, and what is the JSON Schema of each?

Every document is a msgspec Struct of some room. The table below names them by dotted path, so that asking for one
schema imports one module. The files under ``schemas/`` are what this module generates; a test holds them equal.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import msgspec

from dataguard.cli import completing, output
from dataguard.cli.options import PATH
from dataguard.errors import UsageError

__all__ = ["DOCUMENTS", "schema", "schema_bytes", "schema_of"]

DOCUMENTS = {
    "amended": "dataguard.run.amended:Amended",
    "audit": "dataguard.audit.documents:AuditSummary",
    "audit-header": "dataguard.audit.folder:AuditHeader",
    "canary": "dataguard.torch.canary.answers:CanaryRecord|CanaryComparison",
    "completion": "dataguard.cli.completion:CompletionScript",
    "demo": "dataguard.cli.demo:DemoAnswer",
    "experiment": "dataguard.torch.experiment.answers:ExperimentReport",
    "frames-header": "dataguard.run.frames_header:FramesHeader",
    "index-header": "dataguard.run.columns:FileIdentity",
    "init": "dataguard.cli.starting:InitAnswer",
    "inspect": "dataguard.replay.answers:InspectAnswer|SkippedBatch",
    "journal-event": "dataguard.run.events:EventFile",
    "loader-state": "dataguard.plan.state:LoaderState",
    "log": "dataguard.replay.log:LogLine",
    "manifest": "dataguard.corpus.manifest_format:ManifestHeader",
    "manifest-build": "dataguard.report.manifest_documents:ManifestBuilt",
    "manifest-finding": "dataguard.report.manifest_documents:FindingShown",
    "manifest-shard": "dataguard.report.manifest_documents:ShardShown",
    "manifest-show": "dataguard.report.manifest_documents:ManifestShown",
    "manifest-verify": "dataguard.report.manifest_documents:ManifestVerified",
    "plan": "dataguard.plan.document:PlanDocument",
    "policy": "dataguard.gate.document:PolicyDocument",
    "policy-check": "dataguard.gate.answers:PolicyChecked",
    "policy-explain": "dataguard.gate.answers:PolicyShown|RecordExplained",
    "policy-init": "dataguard.gate.answers:PolicyWritten",
    "planned": "dataguard.loader.answers:PlanAnswer",
    "preflight": "dataguard.triage.preflight.answers:PreflightAnswer",
    "profile": "dataguard.score.profile:Profile",
    "rehearse": "dataguard.loader.answers:RehearseAnswer",
    "replay": "dataguard.replay.answers:ReplayAnswer",
    "report": "dataguard.report.written:ReportWritten",
    "seen": "dataguard.replay.answers:SeenAnswer",
    "spikes": "dataguard.triage.detect.answers:SpikesAnswer|ComparedLogs",
    "store-file": "dataguard.run.store_file:StoreFile",
    "store-list": "dataguard.run.store_account:StoreList",
    "store-prune": "dataguard.run.store_prune:StorePruned",
    "store-settings": "dataguard.run.store_ledger:StoreSettings",
    "store-show": "dataguard.replay.fetch:StoreShown",
    "telemetry-import": "dataguard.run.telemetry_import:TelemetryImported",
    "telemetry-show": "dataguard.run.telemetry_show:TelemetryShown",
    "triage": "dataguard.triage.answers:TriageAnswer",
    "tidied": "dataguard.run.tidy:TidiedAttempt",
    "verify": "dataguard.replay.answers:VerifyAnswer",
    "warmup": "dataguard.cli.warmup:WarmedUp",
    "watch": "dataguard.triage.watching.answers:WatchAnswer",
    "where": "dataguard.replay.answers:WhereAnswer",
}
"""Name of a document, as typed and as its file under ``schemas/`` is called -> module:Struct (or one of several).

A command's ``--json`` answer goes by the command's name (``manifest-show``), but for `plan` (``planned``: ``plan`` is
what lies in a run), the four that amend a run (``amended``), and `seal` and `compact` (``tidied``).
"""

_CHECK = {
    "description": "SHA-256 of the file's bytes before this member.",
    "type": "string",
    "pattern": "^[0-9a-f]{64}$",
}
_MEMBERS_OF_THE_FILE = {"journal-event": {"check": _CHECK}}
"""Members that a file has beside those of its Struct: what guards the bytes is written and read around it."""


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one document.

    >>> schema_of("plan")["title"]
    'dataguard plan'
    """
    path = DOCUMENTS.get(name)
    if path is None:
        near = difflib.get_close_matches(name, DOCUMENTS, n=1)
        raise UsageError(
            f"there is no document {name!r}",
            allowed=", ".join(sorted(DOCUMENTS)),
            todo=f"did you mean {near[0]}?" if near else None,
        )
    module, _, attributes = path.partition(":")
    structs = [getattr(import_module(module), attribute) for attribute in attributes.split("|")]
    made, parts = msgspec.json.schema_components(structs, ref_template="#/$defs/{name}")
    for member, its_schema in _MEMBERS_OF_THE_FILE.get(name, {}).items():
        parts[attributes]["properties"][member] = its_schema
        parts[attributes]["required"].append(member)
    which = made[0] if len(made) == 1 else {"anyOf": list(made)}
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "title": f"dataguard {name}", **which, "$defs": parts}


def schema_bytes(name: str) -> bytes:
    """The schema as it stands in its file: indented, keys in order, one line feed at the end."""
    return msgspec.json.format(msgspec.json.encode(schema_of(name), order="sorted"), indent=2) + b"\n"


@click.command()
@click.argument("name", required=False, shell_complete=completing.names_or_files(*sorted(DOCUMENTS)))
@click.option("--write", "folder", type=PATH, help="Write every schema into this folder instead.")
@click.option("--json", "as_json", is_flag=True, help="Answer with JSON; a schema is JSON anyway, the list becomes it.")
def schema(name: str | None, folder: Path | None, as_json: bool) -> None:
    """Print the JSON Schema of a document; without a NAME, the names there are.

    Examples: dataguard schema
    dataguard schema triage
    dataguard schema --write schemas
    """
    if folder is not None:
        if name is not None:
            raise UsageError("a NAME and --write cannot go together", allowed="schema NAME, or schema --write FOLDER")
        folder.mkdir(parents=True, exist_ok=True)
        for each in DOCUMENTS:
            (folder / f"{each}.json").write_bytes(schema_bytes(each))
        output.say(f"wrote {len(DOCUMENTS)} schemas into {folder}")
        return
    if name is not None:
        output.write(schema_bytes(name))
    else:
        names = sorted(DOCUMENTS)
        output.write((msgspec.json.encode(names) if as_json else "\n".join(names).encode()) + b"\n")
