"""The page of a run in a headless browser: what a reader sees, does and prints; and that nothing harms them."""

import base64
import re
import time
from dataclasses import replace

import pytest

from fakes.report_run import EVIL, full_run
from wattention.core.records import CellKey
from wattention.report.documents.run import run_document
from wattention.report.renderers.html.page import html_page

LIMIT_BYTES = 6_000_000


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    run = full_run(folder / "run", ("baseline", "flash", "sdpa", EVIL))
    file = folder / "report.html"
    file.write_text(html_page(run_document(run)), encoding="utf-8")
    return file


@pytest.fixture
def opened(browser, page):
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get_log("browser")
    browser.get(page.as_uri())
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def show(window, element):
    window.execute_script("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", element)


def column(window, heading):
    """The first table's head with this heading, and its place."""
    heads = window.find_elements("css selector", "#mechanisms thead th")
    place = next(i for i, head in enumerate(heads) if head.text.replace("\n", " ").startswith(heading))
    return heads[place], place


def rows(window):
    return [row.text for row in window.find_elements("css selector", "#mechanisms tbody th")]


def test_the_page_fetches_nothing_and_stays_small(page):
    text = page.read_text(encoding="utf-8")
    assert len(text.encode()) < LIMIT_BYTES
    assert "default-src 'none'" in text
    own = text.split('<script type="text/plain"')[0]  # before the drawing library
    assert not re.findall(r"(?:src|href)=[\"'](?!#|data:)", own)
    assert "http" not in own.replace("http-equiv", "")


def test_no_request_leaves_the_page(opened):
    for figure in opened.find_elements("css selector", "figure"):
        show(opened, figure)
    assert opened.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_the_first_screen_answers(opened):
    cards = {card.text.split("\n")[0]: card.text for card in opened.find_elements("css selector", ".verdict")}
    assert list(cards) == ["Fastest", "Least energy", "Least memory", "Best quality"]
    assert "flash" in cards["Fastest"]
    assert "0.50x baseline" in cards["Fastest"]


def test_headers_sort_by_number_and_say_so(opened):
    head, place = column(opened, "step")
    button = head.find_element("tag name", "button")
    button.click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert rows(opened)[0] == "flash"
    assert rows(opened)[-1] == "baseline"
    opened.execute_script("arguments[0].focus()", button)
    button.send_keys("\n")  # the keyboard does the same
    assert head.get_attribute("aria-sort") == "descending"
    assert rows(opened)[0] == "baseline"
    assert place > 0


def test_every_number_tells_its_origin_on_hover_and_by_click(opened):
    cells = opened.find_elements("css selector", "#mechanisms tbody td[data-value]")
    assert cells
    for cell in cells:
        assert re.match(r"(measured|counted|predicted|bound|estimated): .", cell.get_attribute("title"))
        assert cell.find_elements("css selector", ".origin")
    cells[0].click()
    told = opened.find_element("css selector", "#mechanisms .told").text
    assert told.startswith("baseline, tokens/s: measured: ")
    assert "95 % interval" in told


def test_every_number_can_be_reached_by_keyboard(opened):
    from selenium.webdriver.common.keys import Keys

    stops = opened.find_elements("css selector", "#mechanisms tbody td[tabindex='0']")
    assert len(stops) == 1  # the table is one stop of the tab key
    opened.execute_script("arguments[0].focus()", stops[0])
    told = opened.find_element("css selector", "#mechanisms .told")
    assert told.text.startswith("baseline, tokens/s: measured: ")
    opened.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert told.text.startswith("flash, tokens/s: measured: ")
    opened.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert not told.text.startswith("flash, tokens/s")
    assert opened.switch_to.active_element.get_attribute("tabindex") == "0"
    for _ in range(4):
        opened.switch_to.active_element.send_keys(Keys.ARROW_UP)
    assert told.text.startswith("baseline, ")  # the head of the table is the end


def test_what_is_absent_says_why(browser, tmp_path):
    run = full_run(tmp_path / "run", energy="absent")
    file = tmp_path / "report.html"
    file.write_text(html_page(run_document(run)), encoding="utf-8")
    browser.get(file.as_uri())
    absent = browser.find_elements("css selector", "#mechanisms td.absent")
    assert absent
    assert all(cell.get_attribute("title") == "absent: no counter can be read here" for cell in absent)
    cards = [card.text for card in browser.find_elements("css selector", ".verdict")]
    assert "not measurable here" in cards[1]
    assert "no counter can be read here" in cards[1]


def test_names_are_words_and_never_markup(opened):
    assert opened.title != "harmed"
    assert EVIL in rows(opened)
    assert not opened.find_elements("css selector", "[onmouseover]")
    for figure in opened.find_elements("css selector", "figure"):
        show(opened, figure)
    legends = opened.find_elements("css selector", "figure .series button span")
    assert EVIL in {name.text for name in legends}


def drawn(window, figure):
    """The names of the traces that a figure shows, once it is drawn."""
    script = (
        "const plot = arguments[0].querySelector('.plot');"
        "return (plot.data || []).filter(t => t.visible !== false).map(t => t.name)"
    )
    deadline = time.monotonic() + 10
    while not (names := window.execute_script(script, figure)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return names


def test_a_legend_hides_and_shows_a_mechanism(opened):
    figure = opened.find_element("css selector", "#figure-block-differences")
    show(opened, figure)
    assert "flash" in drawn(opened, figure)
    button = next(b for b in figure.find_elements("css selector", ".series button") if b.text.endswith("flash"))
    show(opened, button)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert "flash" not in drawn(opened, figure)
    button.click()
    assert "flash" in drawn(opened, figure)


def test_every_figure_is_drawn_and_has_its_data_as_a_table(opened):
    figures = opened.find_elements("css selector", "figure")
    assert figures
    for figure in figures:
        show(opened, figure)
        assert drawn(opened, figure)
        assert figure.find_element("css selector", ".finding").text
        assert figure.find_elements("css selector", "details table")


def test_links_lead_to_sections(browser, page):
    browser.get(f"{page.as_uri()}#notes")
    anchors = [link.get_attribute("href").rpartition("#")[2] for link in browser.find_elements("css selector", "nav a")]
    ids = browser.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert set(anchors) <= set(ids)
    assert len(ids) == len(set(ids))
    assert browser.execute_script("return document.querySelector(':target').id") == "notes"
    assert browser.execute_script("return document.querySelector(':target').getBoundingClientRect().top") < 900


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_telephone_shows_it_without_scrolling_sideways(opened, page, scheme):
    size = {"width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    colours = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", colours)
    opened.get(page.as_uri())
    assert opened.execute_script("return document.documentElement.scrollWidth") <= 380
    for figure in opened.find_elements("css selector", "figure"):
        show(opened, figure)
        assert drawn(opened, figure)
    assert opened.execute_script("return document.documentElement.scrollWidth") <= 380
    paper = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper))) < 200) == (scheme == "dark")
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_theme_can_be_chosen(opened):
    button = opened.find_element("css selector", ".theme")
    button.click()
    button.click()
    assert button.text == "theme: dark"
    assert opened.execute_script("return document.documentElement.dataset.theme") == "dark"


def test_it_prints(opened):
    pdf = base64.b64decode(opened.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") >= 2
    figures = opened.find_elements("css selector", "figure")
    assert all(drawn(opened, figure) for figure in figures)  # also those that never came into view


def test_a_failed_mechanism_has_no_number(browser, tmp_path):
    gate = CellKey(kind="gate", mechanism="flash", block=0)
    run = full_run(tmp_path / "run", fail={gate: ("gate_failed", "failed strict_causality")})
    file = tmp_path / "report.html"
    file.write_text(html_page(run_document(run)), encoding="utf-8")
    browser.get(file.as_uri())
    row = browser.find_elements("css selector", "#mechanisms tbody tr")[1]
    assert row.text.replace("\n", " ") == "flash gate failed"
    assert not row.find_elements("css selector", "[data-value]")


def test_thousands_of_records_stay_small_and_open(browser, tmp_path):
    labels = ("baseline", *(f"m{n}" for n in range(19)))
    run = full_run(tmp_path / "run", labels, blocks=1)
    again = [
        replace(record, key=replace(record.key, block=block))
        for block in range(125)
        for record in run.records
        if record.key.kind != "gate"
    ]
    assert len(again) == 5000
    text = html_page(run_document(replace(run, records=tuple(again))))
    assert len(text.encode()) < LIMIT_BYTES
    file = tmp_path / "report.html"
    file.write_text(text, encoding="utf-8")
    browser.get(file.as_uri())
    assert len(browser.find_elements("css selector", "#mechanisms tbody tr")) == len(labels)
