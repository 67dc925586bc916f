"""What is done at each build of the documentation beyond turning Markdown into HTML?

1. Pages that are made of the code (`generated`) are added before anything is read.
2. Python examples in docstrings, which are doctests, become code blocks (`doctests`, an extension of griffe).
3. Once all pages stand, every public name must have its place among them: one that has none fails the build.
4. The search is made to work on pages that are opened from a folder.
"""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path
from typing import Any

from generated import PAGES, TOP
from mkdocs.structure.files import File, Files
from public import PUBLIC_MODULES

_log = logging.getLogger("mkdocs.hooks.dataguard")


def on_config(config: Any) -> Any:
    """Files of the tree that pages show are looked for from its top, wherever the build was called."""
    config.mdx_configs["pymdownx.snippets"]["base_path"] = [str(TOP)]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of the code."""
    for name, write in PAGES.items():
        files.append(File.generated(config, name, content=write()))
    return files


def on_env(env: Any, config: Any, files: Files) -> Any:
    """Hold the pages against what the package offers; a warning, which ``--strict`` makes a failure."""
    autorefs = config.plugins["autorefs"]
    for module in PUBLIC_MODULES:
        offering = import_module(module)
        for name in [each for each in offering.__all__ if each[:1] != "_"]:
            value = getattr(offering, name)
            defined = f"{getattr(value, '__module__', module)}.{getattr(value, '__qualname__', name)}"
            if not any(_has(autorefs, path) for path in (f"{module}.{name}", defined)):
                _log.warning("%s.%s is public, and no page of the reference holds it", module, name)
    return env


def on_post_build(config: Any) -> None:
    """Write the index of the search as a script, too: pages that are opened from a folder may read no other file."""
    index = Path(config.site_dir) / "search" / "search_index.json"
    index.with_suffix(".js").write_text(f"var __index = {index.read_text(encoding='utf-8')};\n", encoding="utf-8")


def _has(autorefs: Any, path: str) -> bool:
    try:
        autorefs.get_item_url(path)
    except KeyError:
        return False
    return True
