"""Checks run at once: one that hangs or raises is a failed check, and hides no other."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cordata.doctor.examination import mask
from cordata.doctor.finding import Finding, State, in_thread, ok, run_checks, warning, worst
from cordata.errors import ConfigError


async def fine() -> list[Finding]:
    return [ok("fine", "yes")]


async def hanging() -> list[Finding]:
    await asyncio.Event().wait()
    return []


async def broken() -> list[Finding]:
    raise ValueError("guest@example.com")


async def refused() -> list[Finding]:
    raise ConfigError("one", "two", hint="do this")


async def test_others_are_reported_when_one_hangs_and_one_raises() -> None:
    checks = [("hanging", hanging), ("broken", broken), ("refused", refused), ("fine", fine)]
    found = await run_checks(checks, limit_s=0.05)
    assert [(one.check, one.state) for one in found] == [
        ("hanging", "failed"),
        ("broken", "failed"),
        ("refused", "failed"),
        ("refused", "failed"),
        ("fine", "ok"),
    ]
    assert "ValueError" in found[1].text and "guest" not in found[1].text
    assert (found[3].text, found[3].fix) == ("two", "do this")


async def test_thread_that_blocks_does_not_hold_up_the_result() -> None:
    release = threading.Event()

    async def blocked() -> list[Finding]:
        await in_thread(release.wait)
        return []

    found = await run_checks([("blocked", blocked), ("fine", fine)], limit_s=0.05)
    assert [one.state for one in found] == ["failed", "ok"]
    release.set()


async def test_thread_passes_the_result_or_the_error() -> None:
    assert await in_thread(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)


@pytest.mark.parametrize(
    ("states", "whole"),
    [(["ok", "skipped"], "ok"), (["ok", "warning"], "warning"), (["warning", "failed"], "failed")],
)
def test_worst_state_is_that_of_the_whole(states: list[State], whole: str) -> None:
    assert worst([Finding(check="x", state=state, text="") for state in states]) == whole
    assert warning("x", "y", "z").fix == "z"


def test_mask_hides_secrets_and_passwords_of_urls() -> None:
    text = "key 0123abcd at postgresql://ann:pw@db/x and http://h/a?b=c@d"
    masked = "key ******** at postgresql://ann:********@db/x and http://h/a?b=c@d"
    assert mask(text, ["0123abcd"]) == masked


def test_secret_that_begins_like_a_shorter_one_is_masked_as_a_whole() -> None:
    assert mask("redis at hunter2-redis", ["hunter2", "hunter2-redis"]) == "redis at ********"
