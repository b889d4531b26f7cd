"""Mistakes that developers make: the log says what is wrong and where, and quotes no value."""

from __future__ import annotations

import re

import pytest
from tests.integration.server import mistaken
from tests.integration.server.running import server
from tests.integration.server.test_unhandled import ask

APP = "tests.integration.server.mistaken:app"
SAID = {
    "table": r"StatementError: lost\.add: no such table: lost .*app\.migrations\(\)",
    "statement": r"ConfigError: there is no query 'acount\.add' \(did you mean 'account\.add'\?\)",
    "parameter": r"query 'account\.add' lacks parameter balance; .* has no parameter balanse \(",
    "foreign": r"UnitMisuse: unit 'foreign' awaited .* at .*mistaken\.py:\d+ \(a unit awaits",
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a server that met them all, in a request and in a handler."""
    with server(tmp_path_factory.mktemp("state"), app=APP, workers=1) as running:
        for kind in mistaken.MISTAKES:
            assert ask(running, f"/request/{kind}") == 500
            assert ask(running, f"/mistake.made/{kind}") == 200
        running.until_logged("mistaken.make_mistake: attempt .* failed", len(SAID))
        for _ in range(2):  # Python itself warns of the first one only
            assert ask(running, "/await.forgotten/x") == 200
        assert ask(running, "/loop.blocked/x") == 200
        assert ask(running, "/loop.blocked/x") == 200
        running.until_logged("mistaken.forget: attempt 2 of 2 .* it is a dead letter now", 2)
        assert ask(running, "/block/this") == 200
        running.until_logged("request GET /block/this blocked the event loop: ")
        running.until_logged("mistaken.hog blocked the event loop")
        running.until_logged("look failed")
        running.until_logged("backfill hashes failed")
        return running.log


@pytest.mark.parametrize("kind", SAID)
def test_mistake_in_a_unit_is_told_in_the_log(log: str, kind: str) -> None:
    assert re.search(rf"GET /request/{kind} .* 500 .*{SAID[kind]}.* at mistaken\.py:\d+", log)
    assert re.search(rf"make_mistake: attempt .*{SAID[kind]}", log)
    assert mistaken.GUEST not in log


def test_mistake_is_told_in_the_log_where_the_primary_made_it(log: str) -> None:
    assert re.search(rf"look failed with .*{SAID['parameter']}", log)
    assert re.search(rf"backfill hashes failed with {SAID['table']}", log)


def test_handler_fails_when_it_forgets_an_await(log: str) -> None:
    said = "coroutine 'EventContext.run' was never awaited at mistaken.py"
    assert len(re.findall(rf"forget: attempt . of 2 .* NeverAwaited: {said}", log)) == 4


def test_handler_that_blocks_the_loop_is_named_in_the_log_once_a_minute(log: str) -> None:
    found = re.findall(r"mistaken\.hog blocked the event loop: (\d+) ms of processor time", log)
    assert len(found) == 1 and int(found[0]) >= 100
