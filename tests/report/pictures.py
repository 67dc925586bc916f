"""How does a page look? Its picture, as a real browser draws it.

    python -m tests.report.pictures PAGE.html OUT.png [--dark] [--width 1200] [--height N] [--cell] [--sections ID,ID]

Without ``--height`` the whole page is in it; with it, what stands first. ``--cell`` opens the cell of a heat map that
stands out; of ``--sections`` (``verdict,curve,ranks``, say) alone a picture is made. Needs chromium and playwright (the
``dev`` extra).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.report.opened import FLAGS

__all__ = ["picture"]

_ALONE = """sections => {
  for (const each of document.querySelectorAll("main > *")) each.hidden = !sections.includes(each.id);
}"""


def picture(
    page: Path,
    out: Path,
    *,
    dark: bool = False,
    width: int = 1200,
    height: int | None = None,
    cell: bool = False,
    sections: Sequence[str] = (),
    scale: float = 1.0,
) -> None:
    """Write the picture of a page as a PNG.

    Parameters
    ----------
    page, out
        The page, and where its picture goes; what stands there is replaced.
    dark
        As it is on a dark screen.
    width, height
        In pixels of the page; the whole of it where `height` is None.
    cell
        Open the cell that stands out most, of a run's page.
    sections
        Each ``id`` of those that are in it; all where none is named.
    scale
        Pixels of the picture for one of the page.

    Raises
    ------
    SystemExit
        There is no chromium, no playwright, no such page, or no such section or cell in it.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        sys.exit("pictures: playwright is not installed: pip install -e '.[dev]'")
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("pictures: no chromium on this machine")
    if not page.is_file():
        sys.exit(f"pictures: there is no page {page}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        opened = browser.new_page(
            viewport={"width": width, "height": height or 900},
            color_scheme="dark" if dark else "light",
            device_scale_factor=scale,
            reduced_motion="reduce",
        )
        opened.goto(page.resolve().as_uri())
        opened.wait_for_timeout(500)  # what is drawn in steps is drawn by then
        if cell:
            found = opened.locator(".map[open] td.out")
            if not found.count():
                sys.exit(f"pictures: no cell of {page} stands out")
            found.first.click()
        opened.mouse.move(0, 0)
        for section in sections:
            if not opened.locator(f"#{section}").count():
                sys.exit(f"pictures: {page} has no section {section}")
        if sections:
            opened.add_style_tag(content="nav, footer { display: none }")
            opened.evaluate(_ALONE, list(sections))
        opened.evaluate("scrollTo(0, 0)")
        opened.wait_for_timeout(200)
        opened.screenshot(path=str(out), full_page=height is None)
        browser.close()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="The picture of a page, as a browser draws it.")
    parser.add_argument("page", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--height", type=int)
    parser.add_argument("--cell", action="store_true")
    parser.add_argument("--sections", default="", metavar="ID,ID")
    parser.add_argument("--scale", type=float, default=1.0)
    asked = parser.parse_args()
    picture(
        asked.page,
        asked.out,
        dark=asked.dark,
        width=asked.width,
        height=asked.height,
        cell=asked.cell,
        sections=[each for each in asked.sections.split(",") if each],
        scale=asked.scale,
    )


if __name__ == "__main__":
    main()
