"""How does a page come about that is whole in itself, and in which nothing from data can ever act?

1. Templates are Jinja2 with autoescape for every one of them; a name that a template does not know is an error.
2. What comes from data goes through `visible` (controls and directional marks shown as escapes) before it is escaped.
3. Facts for scripts lie in a data block, JSON in which ``<``, ``>``, ``&`` and the line ends of Unicode are escapes, so
   that no text in it can end the block.
4. The page's policy for content (a ``meta`` element) allows the scripts that were put in here, each by its SHA-256, and
   nothing else: no request leaves the page, and a script that got in by some fault would not run.

The same facts give the same bytes: there is no clock, no random number and no path of this machine in a page.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from dataguard.report.tables import printable
from dataguard.version import __version__

if TYPE_CHECKING:
    import jinja2

__all__ = ["PAGE_START", "data_block", "num_bytes", "page", "share", "short_number", "still_page", "told", "visible"]

PAGE_START = b"<!doctype html>\n<!-- a report of dataguard -->\n"
"""How each of these pages begins; a file that begins otherwise is somebody else's."""

_SCRIPT_SAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")


def page(room: str, facts: Mapping[str, Any], *, data: Any, charts: bool) -> bytes:
    """A whole page, UTF-8.

    Parameters
    ----------
    room
        Folder under ``templates/`` with the page's own ``page.html``, ``page.css`` and ``page.js``.
    facts
        What it is made of; strings in it are text, never HTML.
    data
        Facts for the page's script, as JSON knows them.
    charts
        Whether the page draws, and so holds plotly.js.
    """
    from markupsafe import Markup

    scripts = [*([_plotly()] if charts else []), _resource("page.js"), _resource(f"{room}/page.js")]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    made = _environment().get_template(f"{room}/page.html")
    content = made.render(
        **facts,
        script_hashes=" ".join(f"'sha256-{digest}'" for digest in digests),
        style=Markup(_resource("page.css") + _resource(f"{room}/page.css")),  # noqa: S704 - files of this package
        scripts=[Markup(text) for text in scripts],  # noqa: S704 - files of packages
        data=data_block(data),
        version=__version__,
    )
    return PAGE_START + content.encode("utf-8", "backslashreplace")


def still_page(template: str, facts: Mapping[str, Any]) -> bytes:
    """A whole page without any script, UTF-8; its template is a document of its own.

    Parameters
    ----------
    template
        Path of the template under ``templates/``.
    facts
        What it is made of; strings in it are text, never HTML.
    """
    from markupsafe import Markup

    style = Markup(_resource("page.css"))  # noqa: S704 - a file of this package
    content = _environment().get_template(template).render(**facts, style=style, version=__version__)
    return PAGE_START + content.encode("utf-8", "backslashreplace")


def data_block(data: Any) -> Any:
    r"""JSON that may stand in a ``<script type="application/json">``, whatever texts it holds, as markup.

    >>> print(data_block({"name": "</script>\u2028"}))
    {"name":"\u003c/script\u003e\u2028"}
    """
    from markupsafe import Markup

    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(_SCRIPT_SAFE))  # noqa: S704 - it holds no character that HTML knows


def visible(text: object) -> str:
    r"""Text from data as it may be shown on one line of a page; it is escaped for HTML where it is put in.

    >>> visible("a\u202eb\x1b[31m")
    'a\\u202eb\\x1b[31m'
    """
    return printable(str(text))


def num_bytes(number: int) -> str:
    """A size for people.

    >>> num_bytes(999), num_bytes(5_300_000)
    ('999 bytes', '5.3 MB')
    """
    value, unit = float(number), 0
    while value >= 999.95 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:,.0f} {_UNITS[0]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def share(part: float | None) -> str:
    """A share as a percentage that never shows something as nothing, or less than all as all.

    >>> share(0.10966), share(0.0), share(1e-7), share(0.999999), share(None)
    ('10.97%', '0%', '<0.01%', '99.99%', '-')
    """
    if part is None:
        return "-"
    if part <= 0 or part >= 1:
        return f"{part:.0%}"
    return "<0.01%" if part < 0.0001 else f"{min(part, 0.9999):.2%}"


def short_number(value: float) -> str:
    """A value of a signal.

    >>> short_number(1234567.0), short_number(0.123456), short_number(3), short_number(-0.0)
    ('1,234,567', '0.1235', '3', '0')
    """
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def told(value: float | None, missing: str = "-") -> str:
    """A number that was measured, or what stands where it was not; NaN and infinity are told as themselves.

    >>> told(11.25), told(None), told(float("nan")), told(float("-inf"))
    ('11.25', '-', 'NaN', '-infinity')
    """
    if value is None:
        return missing
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    return short_number(value)


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("dataguard.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        visible=visible,
        count=lambda number: f"{number:,}",
        share=share,
        size=num_bytes,
        told=told,
        value=short_number,
    )
    return made


@cache
def _resource(name: str) -> str:
    return files("dataguard.report").joinpath("templates", name).read_bytes().decode()


@cache
def _plotly() -> str:
    """plotly.js, as its Python package ships it."""
    text = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes().decode()
    assert "</script" not in text.lower(), "plotly.js would end its own element"
    return text
