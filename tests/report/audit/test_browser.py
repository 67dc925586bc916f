"""The page of an audit in a real browser: drawn, clicked through, harmless, on a phone, by keyboard and in print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.report.audit.making import PERIODIC, SCRIPT, SHARD, SOURCE, audit_of, corpus
from tests.report.opened import Watched, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def path(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    return audit_of(folder / "out", corpus(folder / "in"), weights={"web": "3", "ids": "1", SOURCE: "1"}).report


@pytest.fixture(scope="module")
def opened(browser: Browser, path: Path) -> Iterator[Watched]:
    """One page for all tests that only look and click."""
    watched = Watched(browser, path, viewport={"width": 1200, "height": 900})
    yield watched
    watched.page.close()


@pytest.fixture
def watched(opened: Watched) -> Iterator[Watched]:
    yield opened
    assert opened.told == []
    assert opened.requests == [opened.url], "nothing is asked of anyone"


def test_it_opens_and_is_drawn(watched: Watched) -> None:
    page = watched.page
    assert watched.text("h1") == "Fail"
    assert page.title() == "Fail: audit by policy default"
    assert page.locator("#chart .main-svg").count() >= 1
    assert page.locator("#chart .bars .point").count() > 0
    assert page.evaluate("Plotly.version")
    assert page.evaluate("window.hit") is None


def test_the_chooser_draws_one_signal_at_a_time(watched: Watched) -> None:
    page = watched.page
    for signal in ("byte_entropy", "length_words", "token_periodic_repeats", "length_outlier"):
        page.select_option(
            "#signal",
            label=next(
                option for option in page.locator("#signal option").all_inner_texts() if option.split(" ")[0] == signal
            ),
        )
        assert watched.text("#definition").startswith(f"{signal}: ")
        assert page.locator("#chart .bars .point").count() > 0
        assert signal in page.locator("#chart").get_attribute("aria-label")
    page.select_option(
        "#signal",
        index=[option.split(" ")[0] for option in page.locator("#signal option").all_inner_texts()].index(
            "byte_entropy"
        ),
    )
    every = page.locator("#numbers tr").count()
    assert every == 2
    lines = page.evaluate(
        "document.querySelector('#chart').layout.shapes.filter(s => s.xref !== 'paper').map(s => s.x0)"
    )
    assert lines == [2, 7.2]
    page.select_option("#sources", label=SOURCE)
    assert page.locator("#numbers tr").count() == 1
    assert page.locator("#numbers bdi").text_content() == SOURCE
    shown = page.locator("#chart .annotation-text").all_text_contents()
    assert any(SOURCE in text for text in shown), "a name is text in the chart, too"
    assert page.locator("#chart img, #chart a").count() == 0


def test_a_rule_leads_to_its_distribution(watched: Watched) -> None:
    page = watched.page
    entry = page.locator("#rule-list > li", has=page.locator("bdi.name", has_text="byte_periods"))
    assert entry.locator("table").first.is_hidden()
    entry.locator("summary").click()
    assert entry.locator("table").first.is_visible()
    assert entry.locator("mark").first.inner_text().startswith(PERIODIC * 50)
    entry.locator("a[data-signal=byte_periodic_repeats]").click()
    assert watched.text("#definition").startswith("byte_periodic_repeats: ")
    assert page.evaluate("document.activeElement.id") == "signal"


def test_rules_are_sorted_and_filtered(watched: Watched) -> None:
    page = watched.page

    def shares() -> list[float]:
        found = page.eval_on_selector_all("#rule-list > li:not([hidden])", "all => all.map(e => +e.dataset.share)")
        return [float(each) for each in found]

    before = shares()
    assert before != sorted(before, reverse=True)
    page.select_option("#rule-order", "share")
    assert shares() == sorted(before, reverse=True)
    page.check("#rule-fired")
    assert 0 < len(shares()) < len(before)
    page.uncheck("#rule-fired")
    page.select_option("#rule-order", "policy")
    assert shares() == before


def test_text_from_the_corpus_is_text(watched: Watched) -> None:
    page = watched.page
    assert page.locator("main img, main iframe, main object, main svg a").count() == 0
    names = page.evaluate("[...document.querySelectorAll('*')].flatMap(each => each.getAttributeNames())")
    assert not [name for name in names if name.startswith("on")]
    marks = page.locator("#records mark").all_inner_texts()
    assert any(text.startswith(PERIODIC * 50) for text in marks)
    assert any(SCRIPT.strip() in text for text in marks)
    assert SHARD in page.locator("#records").inner_text()
    assert "31mred" in page.content()
    body = page.evaluate("document.body.innerText")
    assert not [char for char in body if char in "\x1b\u202e\u2066\u2028"]
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.wait_for_timeout(100)
    assert page.evaluate("window.hit") is None


def test_a_script_that_got_in_would_not_run(browser: Browser, path: Path, tmp_path: Path) -> None:
    """What holds should escaping fail one day: the page's own policy for content."""
    bad = tmp_path / "bad.html"
    worse = "<script>window.hit = 1</script><img src=x onerror='window.hit = 2'><link rel=stylesheet href='x.css'>"
    bad.write_text(path.read_text().replace("</main>", f"{worse}</main>"))
    opened = Watched(browser, bad)
    assert opened.page.evaluate("window.hit") is None
    assert sorted(opened.refused) == sorted(opened.requests[1:]), "asked for, and refused by the page itself"
    assert len(opened.refused) == 2
    assert sum("Content Security Policy" in told for told in opened.told) >= 2
    opened.page.close()


def test_a_phone_needs_no_sideways_scrolling(browser: Browser, path: Path) -> None:
    opened = Watched(browser, path, viewport={"width": 360, "height": 740}, color_scheme="light")
    page = opened.page
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.evaluate("document.querySelector('#chart .main-svg').getBoundingClientRect().right") <= 360
    page.select_option("#signal", index=3)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    ink = "document.querySelector('#chart').layout.annotations[0].font.color"
    shades = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        shades[scheme] = (sum(map(int, background[4:-1].split(","))), page.evaluate(ink))
    assert shades["light"][0] > 700
    assert shades["dark"][0] < 100
    assert shades["light"][1] != shades["dark"][1], "the chart follows"
    assert opened.told == []
    page.close()


def test_the_keyboard_reaches_everything_in_order(browser: Browser, path: Path) -> None:
    watched = Watched(browser, path, viewport={"width": 1200, "height": 900})
    page = watched.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    seen: list[str] = []
    places: list[float] = []
    for _ in range(90):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        top = "document.activeElement.getBoundingClientRect().top + scrollY"
        places.append(page.evaluate(top))
        if seen[-1] == "sources":
            break
    assert [each for each in seen if each in {"rule-order", "rule-fired", "signal", "sources"}] == [
        "rule-order",
        "rule-fired",
        "signal",
        "sources",
    ]
    assert places == sorted(places), "focus goes down the page"
    rules = page.locator("#rule-list > li").count()
    assert seen.count("SUMMARY") == rules
    page.locator("#rule-list summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#rule-list details").first.evaluate("each => each.open")
    page.locator("#signal").focus()
    before = watched.text("#definition")
    page.keyboard.press("ArrowUp")
    assert watched.text("#definition") != before
    assert watched.told == []
    page.close()


def test_print_has_all_of_it_and_cuts_nothing(browser: Browser, path: Path, tmp_path: Path) -> None:
    opened = Watched(browser, path, viewport={"width": 1200, "height": 900}, color_scheme="dark")
    page = opened.page
    assert page.locator("#duplicates details").first.evaluate("each => each.open") is False
    page.set_viewport_size({"width": 680, "height": 1000})
    page.emulate_media(media="print")
    until(page, "document.querySelector('#chart .main-svg').getBoundingClientRect().width <= 680")
    assert page.locator("nav").is_hidden()
    assert page.locator("#duplicates details").first.evaluate("each => each.open") is True
    assert page.locator("#numbers tr").first.is_visible()
    assert page.locator("#records mark").first.is_visible()
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(32, 36, 42)", "dark ink on white paper"
    wide = "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 681).length"
    assert page.evaluate(wide) == 0
    page.emulate_media(media="screen")
    until(page, "!document.querySelector('#duplicates details').open")
    page.pdf(path=str(tmp_path / "page.pdf"), format="A4")
    assert (tmp_path / "page.pdf").stat().st_size > 50_000
    assert opened.told == []
    page.close()


def test_without_scripts_everything_but_the_chart_is_there(browser: Browser, path: Path) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(path.as_uri())
    assert "scripts are switched off" in page.locator("#distributions").inner_text()
    assert page.locator("#rule-order").is_hidden()
    assert page.locator("#records mark").first.is_visible()
    page.close()
