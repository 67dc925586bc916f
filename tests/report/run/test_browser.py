"""The page of a run in a real browser: drawn, clicked through, harmless, on a phone, by keyboard, dark and in print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dataguard.report.run.page import page_of_run
from tests.report.opened import Watched, until
from tests.report.pictures import picture
from tests.report.run.fed import PEAK, RUN, SCRIPT, SHARD, SOURCE
from tests.report.run.making import empty, quiet, whole

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CONTRAST = """() => {
  const light = (channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * light(r / 255) + 0.7152 * light(g / 255) + 0.0722 * light(b / 255);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const [r, g, b, alpha] = parse(getComputedStyle(at).backgroundColor);
      if (alpha === undefined || alpha === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const poor = [];
  let seen = 0;
  const walker = document.createTreeWalker(document.querySelector("body"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, noscript, option, .heat tbody td, svg")) continue;
    if (!element.checkVisibility()) continue;
    seen += 1;
    const [one, other] = [luminance(parse(getComputedStyle(element).color)), luminance(behind(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) poor.push(`${element.tagName}.${element.className} ${ratio}: ${node.data.slice(0, 30)}`);
  }
  return [seen, [...new Set(poor)]];
}"""


@pytest.fixture(scope="module")
def path(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run") / "run.html"
    made.write_bytes(page_of_run(whole()))
    return made


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
    assert opened.page.evaluate("window.hit") is None, "no text of the data acted"


def layout(watched: Watched, of: str) -> Any:
    return watched.page.evaluate(f"document.querySelector('#curves').{of}")


def test_it_opens_with_the_verdict_and_the_curves(watched: Watched) -> None:
    page = watched.page
    assert watched.text("h1") == "Bad data"
    assert page.title() == f"Bad data: run {RUN}"
    assert page.locator("#curves .main-svg").count() >= 1
    titles = layout(watched, "layout.annotations.map(each => each.text)")
    assert titles == ["loss, nats", "gradient norm"]
    assert layout(watched, "layout.yaxis2.type") == "log"
    assert layout(watched, "layout.yaxis.type") == "linear"
    bands = layout(watched, "layout.shapes.filter(each => each.type === 'rect').map(each => [each.x0, each.x1])")
    assert bands == [[1200, 1212], [1900, 1901], [1940, 2000]]
    lanes = layout(watched, "layout.yaxis3.ticktext")
    assert lanes == ["events", "skips", "checkpoints", "attempt 0", "attempt 1", "attempt 2", "attempt 3"]
    upright = layout(
        watched, "layout.shapes.filter(each => each.type === 'line').map(each => [each.x0, each.line.dash])"
    )
    assert sorted(upright) == [[1000, "dot"], [1180, "dot"], [1190, "dash"]]


def test_ranks_panels_and_axes_are_chosen(watched: Watched) -> None:
    page = watched.page
    alone = layout(watched, "data.length")
    page.select_option("#curve-ranks", "3")
    assert layout(watched, "data.length") == alone + 4, "loss and gradient norm of rank 3, each with where it is NaN"
    page.select_option("#curve-ranks", "all")
    assert layout(watched, "data.length") == alone + 2 * 9
    page.select_option("#curve-ranks", "")
    page.select_option("#curve-more", label="<b>norm</b>")
    shown = page.locator("#curves .annotation-text").all_text_contents()
    assert "<b>norm</b>" in shown, "a name is text in the chart, too"
    page.select_option("#curve-more", "")
    page.check("#curve-log")
    assert layout(watched, "layout.yaxis.type") == "log"
    page.uncheck("#curve-log")
    page.locator("button[data-event='0']").click()
    low, high = layout(watched, "layout.xaxis.range")
    assert 1100 < low < 1200
    assert 1212 < high < 1300
    page.click("#curve-all")
    assert layout(watched, "layout.xaxis.range")[1] > 2000


def test_a_click_on_a_cell_shows_what_the_rank_was_fed(watched: Watched) -> None:
    page = watched.page
    box = page.locator(".map").first
    odd = box.locator("td.out")
    assert odd.count() == 1
    odd.click()
    told = box.locator(".opened")
    assert told.locator("h4").inner_text() == f"Rank 3 at step {PEAK:,}, attempt 1"
    assert f"dataguard inspect '{RUN}' --step {PEAK} --rank 3" in told.inner_text()
    first = told.locator("ol.records > li").first
    text = first.inner_text()
    for part in (
        f"{SHARD}:538",
        "position 38,508",
        "microbatch 0, slot 12",
        "own loss NaN",
        "byte_periods, <u>rule</u>",
    ):
        assert part in text
    assert "stands out" in text
    assert first.locator("mark").inner_text() == SCRIPT
    assert told.locator("ol.records > li").nth(1).locator(".escape").count() > 2
    assert page.locator("#ranks script, #ranks img, #ranks u, #ranks s").count() == 0
    assert odd.get_attribute("aria-selected") == "true"
    told.get_by_role("button", name="Close").click()
    assert told.is_hidden()
    assert box.locator("[aria-selected]").count() == 0


def test_the_measure_is_chosen(watched: Watched) -> None:
    page = watched.page
    box = page.locator(".map").first
    odd = box.locator("td.out")
    assert odd.inner_text() == "11.25, a sample stands out"
    assert box.locator("td.qn").count() == 1
    assert box.locator("td.qx").count() == 1
    assert box.locator("td.qn").evaluate("each => getComputedStyle(each, '::before').content") == '"✕"'
    assert "gradient" in box.locator("td.qx").evaluate("each => getComputedStyle(each).backgroundImage")
    box.locator(".measure").select_option(label="flagged samples")
    assert odd.inner_text() == "3, a sample stands out"
    assert odd.get_attribute("class") == "q9 out"
    assert box.locator("td.q0").count() == 8 * 24 - 1
    assert box.locator(".ticks").inner_text().split() == ["0", "1.5", "3"]
    assert box.locator("table").get_attribute("aria-label").startswith("flagged samples by rank and step")
    box.locator(".measure").select_option(label="loss, nats")
    assert odd.inner_text() == "11.25, a sample stands out"


def test_the_keyboard_alone_reaches_a_sample(watched: Watched) -> None:
    page = watched.page
    box = page.locator(".map").first
    active = "document.activeElement"
    assert box.locator("td[tabindex='0']").count() == 1, "one stop in the order of tabs"
    box.locator(".measure").focus()
    for _ in range(3):
        page.keyboard.press("Tab")
        if page.evaluate(f"{active}.tagName") == "TD":
            break
    where = f"[{active}.parentElement.rowIndex, {active}.cellIndex]"
    row, column = page.evaluate(where)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(where) == [row - 1, column - 1]
    assert "rank 2, step 1,202, loss, nats: " in box.locator(".readout").inner_text()
    page.keyboard.press("Home")
    assert page.evaluate(where) == [row - 1, 1]
    page.keyboard.press("Control+End")
    assert page.evaluate(where) == [8, 24]
    page.keyboard.press("ArrowDown")
    assert page.evaluate(where) == [8, 24], "it ends at the end"
    page.keyboard.press("Control+Home")
    page.keyboard.press("Enter")
    assert page.evaluate(f"{active}.textContent") == "Rank 0 at step 1,191, attempt 1"
    assert box.locator(".opened ol.records > li").count() == 4
    page.keyboard.press("Tab")
    assert page.evaluate(f"{active}.textContent") == "Close"
    page.keyboard.press("Escape")
    assert page.evaluate(where) == [1, 1]
    assert box.locator("td[tabindex='0']").count() == 1


def test_a_cell_without_a_record_says_so(watched: Watched) -> None:
    box = watched.page.locator(".map").first
    box.locator("td.qx").click()
    assert "Nothing was recorded of what this rank was fed" in box.locator(".opened").inner_text()
    watched.page.keyboard.press("Escape")
    box.locator(".opened").get_by_role("button", name="Close").click()


def test_other_maps_signals_and_the_journal(watched: Watched) -> None:
    page = watched.page
    other = page.locator(".map").nth(1)
    assert other.locator("table").is_hidden()
    other.locator("summary").click()
    assert other.locator("td[tabindex='0']").get_attribute("class") == "q9 out"
    other.locator("td.qn").click()
    assert other.locator(".opened h4").is_visible()
    page.get_by_role("button", name="<i>odd</i>").click()
    assert page.locator("#signal-definition").inner_text() == "<i>odd</i>, x"
    assert page.evaluate("document.querySelector('#signal-chart').data.length") == 3
    every = page.locator("#journal-rows tbody tr:visible").count()
    page.select_option("#journal-kind", "skip-added")
    assert 0 < page.locator("#journal-rows tbody tr:visible").count() < every
    page.select_option("#journal-kind", "")


def test_text_from_the_data_is_text(watched: Watched) -> None:
    page = watched.page
    assert page.locator("main img, main iframe, main object, main b b, main u, main s, svg a").count() == 0
    names = page.evaluate("[...document.querySelectorAll('*')].flatMap(each => each.getAttributeNames())")
    assert not [name for name in names if name.startswith("on")]
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    body = page.evaluate("document.body.innerText")
    assert not [char for char in body if char in "\x1b\u202e\u2066\u2028"]
    for text in (SCRIPT, SHARD, SOURCE, "\\x1b[31mred\\x1b[0m \\u202egnp.exe"):
        assert text in body
    points = "(curve, i) => document.querySelector('#curves').data.flatMap(each => each.customdata ?? []).join(' ')"
    drawn = page.evaluate(points)
    assert "&lt;script&gt;" in drawn
    assert "<script" not in drawn


def test_a_command_is_copied_as_it_stands(browser: Browser, path: Path) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector(".copy")
    page.locator("#verdict .copy").first.click()
    until(page, "document.querySelector('#verdict .copy').textContent === 'Copied'")
    shown = page.locator("#verdict .command").first.inner_text()
    assert page.evaluate("navigator.clipboard.readText()") == shown
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling_and_text_stands_out(browser: Browser, path: Path, scheme: Any) -> None:
    opened = Watched(browser, path, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page = opened.page
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.locator("td.out").first.click()
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    until(page, "[...document.querySelectorAll('.heat')].every(each => each.querySelector('td[tabindex]'))")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    box = "document.querySelector('.heat-box')"
    assert page.evaluate(f"{box}.scrollWidth > {box}.clientWidth"), "the map scrolls within its box"
    frame = page.evaluate(f"{box}.getBoundingClientRect().toJSON()")
    rank = page.evaluate("document.querySelector('.heat tbody th').getBoundingClientRect().toJSON()")
    assert rank["left"] >= frame["left"] - 1, "ranks stay in sight"
    seen, poor = page.evaluate(CONTRAST)
    assert seen > 300
    assert poor == []
    shades = page.evaluate(
        "[...Array(10).keys()].map(i => getComputedStyle(document.querySelector(`.shades .q${i}`)).backgroundColor)"
    )
    parts = [[int(part) for part in shade[4:-1].split(",")] for shade in shades]
    lights = [3 * red + 6 * green + blue for red, green, blue in parts]
    assert lights == sorted(lights, reverse=scheme == "light"), "a scale of lightness, for whoever sees no colours"
    assert opened.told == []
    page.close()


@pytest.mark.parametrize(("made", "title"), [(empty, "Nothing has run yet"), (quiet, "Nothing was logged")])
def test_pages_with_next_to_nothing_open_without_complaint(
    browser: Browser, tmp_path: Path, made: Any, title: str
) -> None:
    page = tmp_path / "page.html"
    page.write_bytes(page_of_run(made()))
    opened = Watched(browser, page, ready="h1", viewport={"width": 360, "height": 740})
    assert opened.text("h1") == title
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 360
    assert opened.told == []
    opened.page.close()


def test_print_has_the_page_on_white_paper(browser: Browser, path: Path) -> None:
    opened = Watched(browser, path, viewport={"width": 1200, "height": 900}, color_scheme="dark")
    page = opened.page
    page.set_viewport_size({"width": 680, "height": 1000})
    page.emulate_media(media="print")
    until(page, "document.querySelector('#curves .main-svg').getBoundingClientRect().width <= 680")
    wide = "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 681).length"
    assert page.evaluate(wide) == 0, "nothing is cut"
    assert page.locator("nav").is_hidden()
    assert page.locator(".copy").first.is_hidden()
    assert page.locator(".map").nth(2).locator("table").is_visible()
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(32, 36, 42)", "dark ink on white paper"
    assert opened.told == []
    page.close()


def test_without_scripts_everything_but_the_large_charts_is_there(browser: Browser, path: Path) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(path.as_uri())
    assert page.locator("#curve noscript svg.spark").count() == 3
    assert page.locator("#curve svg.spark").first.is_visible()
    assert page.locator("#signals svg.spark").count() == 5
    assert page.locator(".heat td.out").first.is_visible()
    assert page.locator("#samples mark").first.is_visible()
    assert page.locator("#journal-kind").is_hidden()
    assert page.locator("#journal-rows tbody tr").count() == 16
    page.close()


def test_a_picture_is_made(browser: Browser, path: Path, tmp_path: Path) -> None:
    page = tmp_path / "small.html"
    page.write_text("<body style='background: #123456'><p id=a>x</p>")
    import multiprocessing

    # A browser of its own, in a process of its own: the one of these tests runs in this one.
    process = multiprocessing.get_context("spawn").Process(
        target=picture, args=(page, tmp_path / "a.png"), kwargs={"width": 200, "height": 100}
    )
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert (tmp_path / "a.png").read_bytes()[16:24] == bytes([0, 0, 0, 200, 0, 0, 0, 100])
