"""Do the built pages stand alone when they are opened from a folder: nothing asked of a network, search and all?

Run as ``python -m tests.architecture.opened_docs DIR`` after a build: each page is opened once, as narrow as a phone.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.report.opened import FLAGS, Watched


def faults_of(folder: Path) -> list[str]:
    """What is wrong with the pages of a folder; nothing is."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium")
    if found is None:
        return ["no chromium on this machine to open the pages with"]
    pages = sorted(set(folder.rglob("*.html")) - {folder / "404.html"})  # which servers give, from their root
    faults = [] if len(pages) > 20 else [f"{len(pages)} pages"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        for path in pages:
            name = path.relative_to(folder).as_posix()
            opened = Watched(browser, path, ready=".md-content h1", viewport={"width": 390, "height": 844})
            outside = [url for url in opened.requests if not url.startswith(("file:", "data:", "blob:", "about:"))]
            width = opened.page.evaluate("document.documentElement.scrollWidth")
            faults += [f"{name} asks for {url}" for url in outside] + [f"{name}: {told}" for told in opened.told]
            faults += [f"{name} is {width} pixels wide"] if width > 390 else []
            if "--8" in opened.text(".md-content"):
                faults.append(f"{name} shows the mark of a file instead of the file")
            if opened.page.locator("blockquote blockquote blockquote").count():
                faults.append(f"{name} shows an example as a quotation")
            opened.page.close()
        opened = Watched(browser, folder / "guides" / "train.html", ready=".md-content h1")
        opened.page.keyboard.press("/")
        opened.page.keyboard.type("quarantine")
        opened.page.wait_for_selector(".md-search-result__item", timeout=20_000)
        if "matching" not in opened.text(".md-search-result__meta"):
            faults.append("the search finds nothing")
        browser.close()
    return faults


if __name__ == "__main__":
    told = faults_of(Path(sys.argv[1]))
    print("\n".join(told) or "every page was opened: nothing is asked of a network, and the search finds")
    sys.exit(bool(told))
