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

    def missing_option(self, peer: Peer, *, write: bool, stress: bool) -> str:
        """The option without which it is skipped; "": it is run."""
        if self.writes and not write:
            return "--write"
        if self.stress and not stress:
            return "--stress"
        return "--hotel" if self.of_hotel and not peer.hotel else ""

    def versions_of(self, peer: Peer) -> list[str]:
        """The versions in which it is run."""
        names = [
            name
            for name, protocol in peer.protocols.items()
            if self.since <= protocol.year <= self.until
        ]
        return names if self.each_version else names[-1:]


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
    draw: Callable[[float, str], None],
) -> list[CheckRun]:
    """Run the checks in their order; `draw` is called before each, with the share that is done and
    the name of the check.
    """
    plan: list[tuple[Check, str, str]] = []
    for check in checks:
        option = check.missing_option(peer, write=write, stress=stress)
        plan += [(check, one, option) for one in ([""] if option else check.versions_of(peer))]
    done = []
    for number, (check, version, option) in enumerate(plan):
        draw(number / len(plan), f"{check.id} {version}")
        began = monotonic()
        result = skipped(f"only with {option}") if option else await _run(check, peer, version)
        took_ms = round((monotonic() - began) * 1000)
        shown = version if check.each_version else ""
        done.append(CheckRun(check=check, version=shown, result=result, took_ms=took_ms))
    return done


async def _run(check: Check, peer: Peer, version: str) -> Result:
    try:
        return await check.run(peer.speaking(version))
    except CheckFailed as error:
        return failed(str(error))
    except RequestFailed as error:
        return failed(f"no answer: {error}")
