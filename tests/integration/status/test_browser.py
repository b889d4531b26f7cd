"""The status page in a real browser: live, by keyboard alone, in both colour schemes, without
scripts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.status.running import Page, status_page
from tests.servers.chromium import PROGRAM, Chromium

pytestmark = pytest.mark.skipif(
    shutil.which(PROGRAM) is None,
    reason="Chromium is not installed: `make test-smoke` runs this on the machine itself",
)

#: Texts whose contrast with their background is below 4.5 (WCAG 2.1, 1.4.3), as the browser paints.
CONTRAST = """(() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map((one) => (one /= 255) <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    if (![...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim())) continue;
    const [one, other] = [parse(getComputedStyle(node).color), ground(node)].map(light);
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) found.push(`${node.outerHTML.slice(0, 80)}: ${ratio.toFixed(2)}`);
  }
  return found;
})()"""
#: What a screen reader would miss: names of controls, heads of columns, titles of regions.
UNNAMED = """(() => [
  ...[...document.querySelectorAll("button, input:not([type=hidden])")].filter(
    (one) => !(one.labels?.length || one.ariaLabel || one.textContent.trim())),
  ...[...document.querySelectorAll("table")].filter(
    (one) => !one.caption || [...one.querySelectorAll("th")].some((head) => !head.scope)),
  ...[...document.querySelectorAll("[aria-labelledby]")].filter(
    (one) => !one.hidden && !document.getElementById(one.getAttribute("aria-labelledby"))),
].map((one) => one.outerHTML.slice(0, 100)))()"""
LIVE = 'document.getElementById("connection").textContent === "Live."'


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with status_page(tmp_path) as page:
        yield page


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    with Chromium(tmp_path / "profile") as browser:
        yield browser


def log_in(browser: Chromium, page: Page) -> None:
    """By keyboard."""
    browser.go(page.url)
    browser.until('document.activeElement.id === "token"')  # `autofocus`: with its first frame
    browser.write(page.token)
    browser.loads(lambda: browser.press("Enter"))
    assert browser.ask("location.pathname") == "/"


def focus(browser: Chromium, script: str) -> None:
    """Press Tab until the focused element is one for which this is true."""
    for _ in range(100):
        browser.press("Tab")
        if browser.ask(f"(one => {script})(document.activeElement)"):
            return
    raise AssertionError(f"Tab does not reach {script}")


def test_operator_replays_a_dead_letter_by_keyboard_alone(page: Page, browser: Chromium) -> None:
    log_in(browser, page)
    browser.until(LIVE)
    browser.press("Tab")
    assert browser.ask("document.activeElement.className") == "skip"
    assert browser.ask("getComputedStyle(document.activeElement).outlineWidth") == "3px"
    browser.ask("window.loadedOnce = true")

    # It is shown without a reload, and told to a screen reader.
    page.publish("thing.refused")
    browser.until('document.querySelector("#dead-letters button") !== null')
    browser.until('document.getElementById("verdict").innerText.includes("dead letters")')
    assert browser.ask('document.getElementById("verdict").getAttribute("role")') == "status"
    assert browser.ask("window.loadedOnce") is True

    focus(browser, 'one.closest("#dead-letters") && one.tagName === "BUTTON"')
    assert browser.ask("document.activeElement.ariaLabel").startswith("Replay ")
    name = browser.ask("document.activeElement.id")
    # The button keeps the focus when its part is replaced.
    page.publish("thing.refused")
    browser.until('document.querySelectorAll("#dead-letters button").length === 2')
    assert browser.ask("document.activeElement.id") == name
    browser.loads(lambda: browser.press("Enter"))
    done = browser.ask('document.querySelector(".done").textContent')
    assert done == "The dead letter was returned to its group."
    event = name.removeprefix("dead-letters-").partition("-")[0]
    page.server.until_logged(f"event {event} failed", count=2)

    assert browser.ask(UNNAMED) == []
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.call("Emulation.setEmulatedMedia", features=features)
        is_dark = browser.ask('matchMedia("(prefers-color-scheme: dark)").matches')
        red = int(browser.ask("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"))
        assert is_dark == (scheme == "dark") == (red < 128)
        assert browser.ask(CONTRAST) == []
    for path in ("/configuration", "/trace?id=unknown"):
        browser.go(page.url + path)
        assert browser.ask(UNNAMED) == [] and browser.ask(CONTRAST) == []
    # Neither violations of the policy nor errors.
    assert browser.complaints == []


def test_page_works_without_scripts_and_refuses_inline_ones(page: Page, browser: Chromium) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    log_in(browser, page)
    page.publish("thing.refused")
    page.until_shown("/replay")
    # Each worker collects for itself, every 2 s.
    while not browser.ask('document.querySelectorAll("#dead-letters tbody tr").length'):
        focus(browser, 'one.textContent === "Refresh"')
        browser.loads(lambda: browser.press("Enter"))
    assert browser.ask('document.getElementById("connection").textContent').startswith("As of ")
    focus(browser, 'one.closest("#dead-letters") && one.tagName === "BUTTON"')
    browser.loads(lambda: browser.press("Enter"))
    assert browser.ask('document.querySelector(".done") !== null')
    assert browser.complaints == []

    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    browser.go(page.url)
    browser.ask('document.body.insertAdjacentHTML("beforeend", "<p style=color:red>a</p>")')
    browser.until("true")
    assert any("Content Security Policy" in one for one in browser.complaints)


def test_form_of_another_site_is_refused(page: Page, browser: Chromium) -> None:
    page.publish("thing.refused")
    page.until_shown("/replay")
    page.log_in()
    log_in(browser, page)
    # The same host with another name is another site, to which the cookie is not sent.
    form = f"<form method=post action={page.url}/replay><input name=event value=a><button>"
    browser.go(f"data:text/html,{form}</form>")
    browser.loads(lambda: browser.ask('document.querySelector("button").click()'))
    assert browser.ask("location.pathname") == "/login"
    assert "replay" not in page.server.log
