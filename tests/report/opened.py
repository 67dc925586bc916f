"""A page that is open in a real browser, and watched: it asks nobody for anything, and complains of nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")


class Watched:
    """An open page, with everything it did that a page of ours never does."""

    def __init__(self, browser: Browser, path: Path, *, ready: str = ".main-svg", **settings: Any) -> None:
        self.told: list[str] = []
        self.requests: list[str] = []
        self.refused: list[str] = []
        self.page: Page = browser.new_page(**settings)
        self.page.on("console", lambda message: self.told.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.told.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.told.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("popup", lambda popup: self.told.append(f"popup: {popup.url}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on(
            "requestfailed", lambda request: self.refused.extend([request.url] if request.failure == "csp" else [])
        )
        self.url = path.as_uri()
        self.page.goto(self.url)
        self.page.wait_for_selector(ready)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()


def until(page: Page, expression: str) -> None:
    """Wait for something to hold; the page's policy for content refuses the library's own way."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never came true: {expression}")
