"""Kernels compile once, are kept where that can be, work where it cannot, and say when they keep someone waiting."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import PACKAGE
from tests.support.processes import environment

# A small module of kernels inside the package's copy, and a script that runs it and shows what it was told.
MODULE = """
from dataguard.core.compiled import kernel, part

@part(inline=True)
def _twice(x):
    return x + x

@part()
def _shifted(x, by):
    return _twice(x) + by

@kernel(seconds=7)
def total(values, by):
    result = 0
    for value in values:
        result += _shifted(value, by)
    return result
"""
SCRIPT = """
import sys
import numpy as np
from dataguard.core import compiled
import dataguard.core.tried
told = []
compiled.on_compilation(lambda c: told.append((c.kernel.partition(".core.")[2], c.seconds, c.kept)))
print(dataguard.core.tried.total(np.arange(4), 1), told)
"""
COMPILED = "16 [('tried.total', 7, {kept})]\n"
FROM_CACHE = "16 []\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of the package without anything compiled, with the small module in it."""
    core = tmp_path / "site" / "dataguard" / "core"
    shutil.copytree(PACKAGE / "core", core, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "errors.py", "version.py"):
        shutil.copy(PACKAGE / name, core.parent)
    (core / "tried.py").write_text(MODULE)
    return core.parents[1]


def run(site: Path, script: str = SCRIPT, **variables: str | None) -> str:
    variables = {"NUMBA_CACHE_DIR": None, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    env = environment(**{**variables, "PYTHONPATH": str(site)})
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=site, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def kept_files(folder: Path) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in folder.rglob("*.nbi"))


def make_read_only(site: Path, tmp_path: Path) -> dict[str, str]:
    """Nothing can be kept beside the modules, nor in the home.

    Also where the tests run as root, whom no permission stops: a folder cannot be made where a file stands.
    """
    for folder in [site / "dataguard", *(path for path in (site / "dataguard").rglob("*") if path.is_dir())]:
        (folder / "__pycache__").write_text("in the way")
        folder.chmod(0o555)
    file = tmp_path / "a_file"
    file.write_text("not a folder")
    return {"HOME": str(file / "home"), "XDG_CACHE_HOME": str(file / "cache")}


def make_writable(site: Path) -> None:
    for folder in [site / "dataguard", *(path for path in (site / "dataguard").rglob("*") if path.is_dir())]:
        folder.chmod(0o755)


def test_compiled_once_told_once_and_kept_beside_the_module(site: Path) -> None:
    assert run(site) == COMPILED.format(kept=True)
    assert kept_files(site) == ["tried.total"], "what a kernel calls is kept with it"
    assert run(site) == FROM_CACHE


def test_the_folder_of_the_environment_comes_first(site: Path, tmp_path: Path) -> None:
    assert run(site, NUMBA_CACHE_DIR=str(tmp_path / "kept")) == COMPILED.format(kept=True)
    assert kept_files(tmp_path / "kept") == ["tried.total"]
    assert kept_files(site) == []
    assert run(site, NUMBA_CACHE_DIR=str(tmp_path / "kept")) == FROM_CACHE


def test_a_changed_part_is_compiled_again(site: Path) -> None:
    run(site)
    (site / "dataguard" / "core" / "tried.py").write_text(MODULE.replace("+ by", "- by"))
    assert run(site) == COMPILED.format(kept=True).replace("16", "8")


def test_a_read_only_installation_compiles_in_every_process(site: Path, tmp_path: Path) -> None:
    home = make_read_only(site, tmp_path)
    try:
        assert run(site, **home) == COMPILED.format(kept=False)
        assert run(site, **home) == COMPILED.format(kept=False)
        assert kept_files(tmp_path) == []
        below_a_file = {**home, "NUMBA_CACHE_DIR": str(tmp_path / "a_file" / "kept")}
        assert run(site, **below_a_file) == COMPILED.format(kept=False)
    finally:
        make_writable(site)


# The file system is mounted read-only, also for root: no folder can be written, all of them can be read.
READ_ONLY = """
import numba.core.caching as caching
def read_only(self):
    raise PermissionError("read-only file system")
caching._CacheLocator.ensure_cache_path = read_only
"""


def test_what_lies_in_folders_that_cannot_be_written_is_used(site: Path, tmp_path: Path) -> None:
    shared = {"NUMBA_CACHE_DIR": str(tmp_path / "shared")}
    assert run(site, **shared) == COMPILED.format(kept=True)
    assert run(site, READ_ONLY + SCRIPT) == COMPILED.format(kept=False), "nothing lies beside the module"
    assert run(site, READ_ONLY + SCRIPT, **shared) == FROM_CACHE
    assert run(site) == COMPILED.format(kept=True)
    assert run(site, READ_ONLY + SCRIPT) == FROM_CACHE
    before = sorted(tmp_path.rglob("*"))
    assert run(site, READ_ONLY + SCRIPT, NUMBA_CACHE_DIR=str(tmp_path / "none")) == FROM_CACHE
    (site / "dataguard" / "core" / "tried.py").write_text(MODULE.replace("+ by", "- by"))
    assert run(site, READ_ONLY + SCRIPT, **shared) == COMPILED.format(kept=False).replace("16", "8")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_can_be_written_is_filled_whatever_lies_behind_it(site: Path, tmp_path: Path) -> None:
    run(site)
    assert run(site, NUMBA_CACHE_DIR=str(tmp_path / "kept")) == COMPILED.format(kept=True)
    assert kept_files(tmp_path / "kept") == ["tried.total"]


def test_kernels_are_listed_with_what_became_of_them(site: Path, tmp_path: Path) -> None:
    show = SCRIPT + "print([(k.num_variants, k.num_from_cache, k.folder) for k in compiled.kernels()])\n"
    kept = str(site / "dataguard" / "core" / "__pycache__")
    before = (
        "from dataguard.core import compiled\nimport dataguard.core.tried\nprint(compiled.kernels()[0].num_variants)"
    )
    assert run(site, before) == "0\n"
    assert run(site, READ_ONLY + show).splitlines()[1] == "[(1, 0, None)]"
    assert run(site, show).splitlines()[1] == f"[(1, 0, {kept!r})]"
    assert run(site, READ_ONLY + show).splitlines()[1] == f"[(1, 1, {kept!r})]"


def test_a_folder_that_cannot_be_written_gives_way_to_the_next(site: Path, tmp_path: Path) -> None:
    (tmp_path / "a_file").write_text("not a folder")
    assert run(site, NUMBA_CACHE_DIR=str(tmp_path / "a_file" / "kept")) == COMPILED.format(kept=True)
    assert kept_files(site) == ["tried.total"]


def test_a_broken_cache_is_a_miss_and_is_mended(site: Path) -> None:
    run(site)
    for suffix, damage in (("nbi", b""), ("nbi", b"\x80\x05broken"), ("nbc", b"no pickle at all")):
        (path,) = site.rglob(f"*.{suffix}")
        path.write_bytes(damage)
        assert run(site) == COMPILED.format(kept=True), (suffix, damage)
    assert run(site) == FROM_CACHE


def test_a_cache_that_stops_being_writable_is_no_error(site: Path, tmp_path: Path) -> None:
    """Found writable at the import and gone at the first call, as when a disk fills up in between."""
    gone = SCRIPT.replace(
        "told = []", "import pathlib; p = pathlib.Path('../kept'); p.rename('../moved'); p.write_text(''); told = []"
    )
    assert run(site, gone, NUMBA_CACHE_DIR=str(tmp_path / "kept")) == COMPILED.format(kept=True)
    assert kept_files(tmp_path) == []


def test_without_compilation_a_kernel_is_its_function(site: Path) -> None:
    assert run(site, NUMBA_DISABLE_JIT="1") == FROM_CACHE


INTRINSIC = """
from numba.extending import intrinsic
from dataguard.core.compiled import kernel
from dataguard.errors import EnvironmentFailed
@intrinsic
def load(typing, value):
    return None
@kernel()
def total(value):
    return load(value)
try:
    total(1)
except EnvironmentFailed as error:
    print(error.todo)
"""


def test_a_kernel_that_is_not_python_alone_says_that_it_has_to_be_compiled(site: Path) -> None:
    assert run(site, INTRINSIC, NUMBA_DISABLE_JIT="1") == "run without NUMBA_DISABLE_JIT\n"


FORK = """
import os, signal, threading
import numpy as np
from dataguard.core import compiled
import dataguard.core.tried
begun = threading.Event()
compiled.on_compilation(lambda _: begun.set())
thread = threading.Thread(target=dataguard.core.tried.total, args=(np.arange(4), 1))
thread.start()
assert begun.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(dataguard.core.tried.total(np.arange(4), 1.5) != 18)
print(os.waitpid(child, 0)[1])
thread.join()
print(dataguard.core.tried.total(np.arange(4), 2.5))
"""


def test_a_child_forked_while_a_thread_compiles_can_compile_too(site: Path) -> None:
    assert run(site, FORK) == "0\n22.0\n"


def test_only_our_kernels_are_told(site: Path) -> None:
    foreign = "import numba\nf = numba.njit(lambda x: x + 1)\n"
    script = SCRIPT.replace("told = []", foreign + "told = []").replace("print(", "f(1)\nprint(")
    assert run(site, script) == COMPILED.format(kept=True)


def test_importing_the_decorator_does_not_import_the_compiler(site: Path) -> None:
    out = run(site, "import sys, dataguard.core.compiled\nprint('numba' in sys.modules, 'numpy' in sys.modules)")
    assert out == "False False\n"


def test_a_division_by_zero_is_what_numpy_gives(site: Path) -> None:
    (site / "dataguard" / "core" / "tried.py").write_text(
        "from dataguard.core.compiled import kernel\n@kernel()\ndef total(values, by):\n    return by / values[0]\n"
    )
    assert run(site).startswith("inf ")
