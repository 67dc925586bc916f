"""A corpus that means harm to whoever looks at it, and audits of it."""

from __future__ import annotations

import gzip
import json
from html.parser import HTMLParser
from pathlib import Path

from dataguard.audit.engines.local import LocalEngine
from dataguard.audit.folder import AuditFolder
from dataguard.audit.run import AuditRequest, run_audit
from dataguard.corpus.formats.protocol import ScanOptions
from dataguard.gate.policy import load_policy, read_policy
from dataguard.report.audit.page import audit_page
from tests.corpus.making import jsonl, npy

SCRIPT = "<script>alert(1)</script> "
ENDS = "</script><img src=x onerror=window.hit=1>\u2028"
TERMINAL = "\x1b[31mred\x1b[0m \u202egnp.exe \u2066x "
PERIODIC = "g4OD"
PROSE = [
    f"The {i}th morning was grey, and nobody in the harbour could say whether boat {i * 7 % 101} would come back."
    for i in range(120)
]
SHARD = "web/a<b onmouseover=alert(1)>&.jsonl"
SOURCE = "<img src onerror>"


def corpus(folder: Path) -> Path:
    """Text that is markup, script and escapes; a shard and a source called so; a damaged shard; ids."""
    harm = [SCRIPT * 400, PERIODIC * 500, TERMINAL * 200, ENDS * 100]
    jsonl(folder / SHARD, [*harm, *PROSE[:60], None])
    jsonl(folder / SOURCE / "c.jsonl", [*PROSE[:90], PERIODIC * 100])
    whole = gzip.compress("".join(json.dumps({"text": text}) + "\n" for text in PROSE).encode(), mtime=0)
    (folder / "web/cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    npy(folder / "ids/e.npy", [i * 31 % 997 for i in range(1000)] + [5] * 300 + list(range(77)))
    return folder


def request(out: Path, folder: Path, *, policy: str = "default", **asked: object) -> AuditRequest:
    """An audit of `corpus`; `policy` is a name, or the toml of one."""
    return AuditRequest(
        paths=tuple(str(path) for path in sorted(folder.iterdir())),
        out=out,
        policy=read_policy(policy, name="test") if "\n" in policy else load_policy(policy),
        scan=ScanOptions(block_bytes=1000, block_tokens=100),
        **{"seq_len": 64, "vocab_size": 990, **asked},
    )


def audit_of(out: Path, folder: Path, *, policy: str = "default", **asked: object) -> AuditFolder:
    """The same, done, with its page."""
    run_audit(request(out, folder, policy=policy, **asked), LocalEngine(1), render=audit_page)
    return AuditFolder(out)


class Read(HTMLParser):
    """What a page is made of: elements, attributes, text that is shown, scripts."""

    def __init__(self, content: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self.marked: list[str] = []
        self._open: list[str] = []
        self.feed(content.decode())
        self.close()
        self.text = "".join(self.words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag in {"script", "style", "mark"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"]:
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)
        elif self._open[-1:] != ["style"]:
            self.words.append(data)
            if "mark" in self._open:
                self.marked.append(data)
