"""Checks, and the suite that runs them one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Literal

from alpinehub.alpinebits_client.http import RequestFailed
from alpinehub.check.peer import Peer

#: warning: allowed, but clients may have problems with it.
Outcome = Literal["passed", "failed", "warning", "skipped"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check."""

    outcome: Outcome
    #: For people: the server's answer, without anything that a guest wrote.
    detail: str = ""


PASSED = Result("passed")


def failed(detail: str) -> Result:
    """The server violates the protocol."""
    return Result("failed", detail)


def warning(detail: str) -> Result:
    """The protocol allows it, but clients may have problems with it."""
    return Result("warning", detail)


def skipped(detail: str) -> Result:
    """The check could not decide."""
    return Result("skipped", detail)


class CheckFailed(Exception):
    """Ends a check as failed; the text is the detail."""


@dataclass(frozen=True, slots=True)
class Check:
    """One requirement that every server must meet."""

    #: `area.name`; public: do not change it.
    id: str
    #: What must hold.
    title: str
    run: Callable[[Peer], Awaitable[Result]]
    #: Once for each of the server's versions, instead of once in the newest.
    each_version: bool = False
    #: Years of the first and last protocol version that it applies to.
    since: int = 2017
    until: int = 9999
    #: Only with --hotel: it reads that hotel's guest requests.
    of_hotel: bool = False
    #: Only with --write: it acknowledges what waits.
    writes: bool = False
    #: Only with --stress: it may bring down a weak server.
    stress: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """A check that was run, and its result."""

    check: Check
    #: "" where the version does not matter.
    version: str
    result: Result
    took_ms: int


async def run_suite(
    peer: Peer,
    checks: Iterable[Check],
    *,
    write: bool,
    stress: bool,
    on_result: Callable[[CheckRun], None],
) -> list[CheckRun]:
    """Run the checks in their order; `on_result` is called with each as it ends."""
    done = []
    for check in checks:
        if (check.writes and not write) or (check.stress and not stress):
            option = "--write" if check.writes else "--stress"
            one = CheckRun(
                check=check, version="", result=skipped(f"only with {option}"), took_ms=0
            )
            on_result(one)
            done.append(one)
            continue
        names = [
            name
            for name, protocol in peer.protocols.items()
            if check.since <= protocol.year <= check.until
        ]
        for name in names if check.each_version else names[-1:]:
            one = await _run(check, peer.speaking(name), name if check.each_version else "")
            on_result(one)
            done.append(one)
    return done


async def _run(check: Check, peer: Peer, version: str) -> CheckRun:
    began = monotonic()
    try:
        missing = check.of_hotel and not peer.hotel
        result = skipped("only with --hotel") if missing else await check.run(peer)
    except CheckFailed as error:
        result = failed(str(error))
    except RequestFailed as error:
        result = failed(f"no answer: {error}")
    took_ms = round((monotonic() - began) * 1000)
    return CheckRun(check=check, version=version, result=result, took_ms=took_ms)
