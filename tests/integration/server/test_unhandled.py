"""Whatever an application raises, and wherever: the log has type and place, and no message."""

from __future__ import annotations

import contextlib
import http.client
from pathlib import Path
from urllib.error import HTTPError

import pytest
from tests.integration.server import careless
from tests.integration.server.running import Server, server

APP = "tests.integration.server.careless:app"
#: Where it happens -> what the log says.
LEFT_BEHIND = {
    "task": r"Task exception was never retrieved: fail_later \(Broken\)",
    "callback": r"Exception in \(Broken\)",
    "future": r"Future exception was never retrieved \(Broken\)",
    "loop": r"a part \(Broken\)",
    "own-loop": r"asyncio: Task exception was never retrieved",
    "thread": r"thread Thread-\d+ \(fail\) failed with Broken",
    "del": r"Broken in Dying.__del__ was ignored",
    "log": r"careless: it went wrong",
}


def ask(running: Server, path: str) -> int:
    """The status; 0: the connection was cut."""
    try:
        with contextlib.suppress(ValueError):  # a body that is cut short
            running.get(path)
    except HTTPError as error:
        error.close()
        return error.code
    except http.client.IncompleteRead:
        return 0
    return 200


def test_log_has_no_message_of_what_nobody_caught(tmp_path: Path) -> None:
    with server(tmp_path, app=APP, workers=1) as running:
        for where in ("request", "handler"):
            for kind, pattern in LEFT_BEHIND.items():
                assert ask(running, f"/{where}/{kind}") == 200
                running.until_logged(pattern, 1 if where == "request" else 2)
        assert "careless.py" in running.log and " in fail_later" in running.log
        assert "a log call at " in running.log
        assert running.log.count("ERROR") >= 2 * len(LEFT_BEHIND)
        assert careless.GUEST not in running.log


def test_log_has_no_message_of_a_request_or_a_handler_that_raises(tmp_path: Path) -> None:
    with server(tmp_path, app=APP, workers=1) as running:
        for kind in careless.RAISING:
            assert ask(running, f"/request/{kind}") == 500
            assert ask(running, f"/after/{kind}") == 200
            assert ask(running, f"/begun/{kind}") == 0
            assert ask(running, f"/handler/{kind}") == 200
        running.until_logged(r"500 Broken at careless\.py:\d+")
        running.until_logged(r"500 ExceptionGroup at careless\.py:\d+ after the response had begun")
        running.until_logged("it is a dead letter now", len(careless.RAISING))
        running.until_logged("caused by tests.integration.server.careless.Broken")
        running.until_logged("while handling tests.integration.server.careless.Broken")
        running.until_logged("2 of 2 in the group: KeyError")
        assert careless.GUEST not in running.log


def test_log_has_no_message_of_what_the_primary_calls(tmp_path: Path) -> None:
    with server(tmp_path, app=APP, workers=1) as running:
        running.until_logged(r"count_guests failed with Broken at careless\.py:\d+")
        running.until_logged(r"backfill guests failed with Broken at careless\.py:\d+")
        assert careless.GUEST not in running.log


def test_log_is_whole_when_a_developer_asks_for_it(tmp_path: Path) -> None:
    with server(tmp_path, "--debug", app=APP, workers=1) as running:
        assert ask(running, "/request/chain") == 500
        running.until_logged(f"KeyError: '{careless.GUEST}'")


@pytest.mark.parametrize("kind", careless.RAISING)
def test_careless_app_would_tell_when_nobody_minded(kind: str) -> None:
    with pytest.raises(Exception) as raised:
        careless.RAISING[kind]()
    assert careless.GUEST in str(raised.value)
