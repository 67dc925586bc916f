"""Which files below a root are no shards, and why not?

Names decide here, and only for what was found in a folder or by a pattern: a file named on the command line is taken
at its word. The rules are few and told by `manifest build --list-ignored`:

1. hidden: a part of the path begins with a dot;
2. temporary: what editors, downloads and copies leave behind (``.tmp``, ``~``, ``.part``, ...);
3. marker: what other tools put beside the data (``_SUCCESS``, check sums, ``README``, ``dataset_info.json``, ...).

What no rule ignores is opened, and its content decides (discovery.py).
"""

from __future__ import annotations

import re

__all__ = ["why_ignored"]

_TEMPORARY = re.compile(
    r"(~|\.(tmp|temp)([.\-_][0-9A-Za-z]+)?|\.(part|partial|crdownload|download|incomplete|aria2|filepart|swp|swo|lock))$",
    re.IGNORECASE,
)
_TEMPORARY_FOLDERS = frozenset({"_temporary", "__pycache__", "__MACOSX", "lost+found"})
_MARKERS = frozenset(
    {
        "_success",
        "_metadata",
        "_common_metadata",
        "desktop.ini",
        "thumbs.db",
        "dataset_info.json",
        "dataset_infos.json",
        "dataset_dict.json",
        "md5sums",
        "sha1sums",
        "sha256sums",
        "sha512sums",
        "checksums.txt",
    }
)
_MARKER_FOLDERS = frozenset({"_delta_log", "_symlink_format_manifest"})
_MARKER_NAME = re.compile(
    r"(_(started|committed)_\w+|(readme|license|licence|notice|changelog|citation|copying)(\.(md|txt|rst|cff|html))?|.+\.(crc|md5|sha1|sha256|sha512|md))",
    re.IGNORECASE,
)


def why_ignored(path: str, beside: frozenset[str] = frozenset()) -> str:
    """The reason why the file at a relative path is no shard, empty where it may be one.

    Parameters
    ----------
    path
        Relative to the root, '/'-separated.
    beside
        Names of the files in the same folder, for markers that only their company gives away.

    Examples
    --------
    >>> why_ignored("a/.cache/part.jsonl"), why_ignored("a/part.jsonl.tmp"), why_ignored("a/_SUCCESS")
    ('hidden', 'temporary', 'marker')
    >>> why_ignored("a/part.jsonl"), why_ignored("a/state.json", frozenset({"dataset_info.json"}))
    ('', 'marker')
    """
    *folders, name = path.split("/")
    if any(part.startswith(".") for part in (*folders, name)):
        return "hidden"
    if any(part in _TEMPORARY_FOLDERS or _TEMPORARY.search(part) for part in folders) or _TEMPORARY.search(name):
        return "temporary"
    if any(part in _MARKER_FOLDERS for part in folders) or name.lower() in _MARKERS or _MARKER_NAME.fullmatch(name):
        return "marker"
    if name == "state.json" and "dataset_info.json" in beside:
        return "marker"
    return ""
