"""A stand-in for the hub on loopback: one dataset, one commit, the few answers that its client asks for."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "org/web"


@contextmanager
def fake_hub(files: Mapping[str, bytes]) -> Iterator[str]:
    """Serve the files of ``org/web`` at COMMIT, which branch ``main`` and tag ``v1`` point to; gives the hub's URL."""
    handler = type("Handler", (_Handler,), {"files": dict(files)})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: Mapping[str, bytes] = {}

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        if found := re.fullmatch(rf"/api/datasets/{NAME}(?:/revision/(.+))?", path):
            if found[1] in (None, "main", "v1", COMMIT):
                self._json({"id": NAME, "sha": COMMIT, "siblings": [{"rfilename": file} for file in self.files]})
            else:
                self._nothing("RevisionNotFound", f"Invalid rev id: {found[1]}")
        elif found := re.fullmatch(rf"/api/datasets/{NAME}/tree/{COMMIT}(?:/(.*))?", path):
            is_deep = urllib.parse.parse_qs(url.query).get("recursive", ["false"])[0].lower() == "true"
            self._json(self._tree(found[1] or "", is_deep=is_deep))
        elif found := re.fullmatch(rf"/datasets/{NAME}/resolve/[^/]+/(.*)", path):
            self._file(found[1])
        else:
            self._nothing("RepoNotFound", "Repository not found")

    do_HEAD = do_POST = do_GET  # noqa: N815 - as http.server calls them

    def _tree(self, folder: str, *, is_deep: bool) -> list[dict[str, Any]]:
        front = f"{folder}/" if folder else ""
        entries, folders = [], set()
        for path, content in sorted(self.files.items()):
            if not path.startswith(front):
                continue
            parts = path.removeprefix(front).split("/")
            folders |= {front + "/".join(parts[:i]) for i in range(1, len(parts)) if is_deep or i == 1}
            if is_deep or len(parts) == 1:
                oid = hashlib.sha1(content, usedforsecurity=False).hexdigest()
                entries.append({"type": "file", "oid": oid, "size": len(content), "path": path})
        return entries + [{"type": "directory", "oid": "0" * 40, "size": 0, "path": path} for path in sorted(folders)]

    def _file(self, path: str) -> None:
        content = self.files.get(path)
        if content is None:
            self._nothing("EntryNotFound", "Entry not found")
            return
        headers = {"ETag": f'"{hashlib.sha1(content, usedforsecurity=False).hexdigest()}"', "X-Repo-Commit": COMMIT}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked:
            start = int(asked[1])
            stop = min(int(asked[2] or len(content)) + 1, len(content))
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
            self._answer(206, content[start:stop], headers)
        else:
            self._answer(200, content, headers)

    def _json(self, document: Any) -> None:
        self._answer(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _nothing(self, code: str, message: str) -> None:
        self._answer(404, b"", {"X-Error-Code": code, "X-Error-Message": message, "X-Repo-Commit": COMMIT})

    def _answer(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
