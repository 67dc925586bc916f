"""How does a page look? Its picture, as a real browser draws it.

    python -m tests.report.pictures PAGE.html OUT.png [--dark] [--width 1200] [--height N] [--cell]

Without ``--height`` the whole page is in it; with it, what stands first. ``--cell`` opens the cell of a heat map that
stands out, ``--from ID`` begins at a section. Needs chromium and playwright (the ``dev`` extra).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from tests.report.opened import FLAGS

__all__ = ["picture"]


def picture(
    page: Path,
    out: Path,
    *,
    dark: bool = False,
    width: int = 1200,
    height: int | None = None,
    cell: bool = False,
    start: str | None = None,
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
    start
        ``id`` of the section that the picture begins at; the begin of the page where None.
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
        if start is not None and not opened.locator(f"#{start}").count():
            sys.exit(f"pictures: {page} has no section {start}")
        opened.evaluate("id => scrollTo(0, id ? document.getElementById(id).offsetTop - 12 : 0)", start)
        if start is not None:
            opened.add_style_tag(content="nav { display: none }")
            opened.evaluate("id => scrollTo(0, document.getElementById(id).offsetTop - 12)", start)
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
    parser.add_argument("--from", dest="start", metavar="ID")
    parser.add_argument("--scale", type=float, default=1.0)
    asked = parser.parse_args()
    picture(
        asked.page,
        asked.out,
        dark=asked.dark,
        width=asked.width,
        height=asked.height,
        cell=asked.cell,
        start=asked.start,
        scale=asked.scale,
    )


if __name__ == "__main__":
    main()
