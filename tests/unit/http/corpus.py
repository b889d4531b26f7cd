"""The wire corpus: tests/data/http/{valid,invalid}/NAME.http with what is expected in NAME.json.

valid: the requests the application sees, and whether the connection ends. invalid: the requests
before the refused one, and its status. Limits: `wire.CORPUS_CONFIG`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.http.wire import (
    CORPUS_CONFIG,
    Recorder,
    Seen,
    Wire,
    connect,
    parse_answers,
    serving,
)

#: The ways to cut the bytes of a case, each a sequence of pieces.
Cut = Callable[[bytes], Iterable[Sequence[bytes]]]
ROOT = Path(__file__).resolve().parents[2] / "data" / "http"


@dataclass(frozen=True, slots=True)
class Case:
    """One file of the corpus."""

    name: str
    data: bytes
    expected: dict[str, Any]

    @property
    def is_valid(self) -> bool:
        return "status" not in self.expected


def load(kind: str) -> list[Case]:
    """All cases of `valid` or `invalid`."""
    return [
        Case(path.stem, path.read_bytes(), json.loads(path.with_suffix(".json").read_text()))
        for path in sorted((ROOT / kind).glob("*.http"))
    ]


def as_expected(seen: Seen) -> dict[str, Any]:
    """A request in the form of the corpus."""
    scope = seen.scope
    query = scope["query_string"].decode()
    target = scope["raw_path"].decode() + ("?" + query if query else "")
    found: dict[str, Any] = {
        "method": scope["method"],
        "target": target,
        "headers": [[name.decode("latin-1"), v.decode("latin-1")] for name, v in scope["headers"]],
    }
    if seen.body:
        found["body"] = seen.body.decode("latin-1")
    if scope["http_version"] != "1.1":
        found["version"] = scope["http_version"]
    return found


async def replay(cases: Iterable[Case], cut: Cut) -> None:
    """Send every case in the pieces that `cut` makes of it, each on a connection of its own.

    Raises: AssertionError with all cases that were not judged as expected.
    """
    failures: list[str] = []
    app = Recorder()
    async with serving(app, CORPUS_CONFIG) as server:
        for case in cases:
            for pieces in cut(case.data):
                app.seen.clear()
                wire = connect(server)
                await wire.feed(*pieces)
                try:
                    check(case, app.seen, wire)
                except AssertionError as error:
                    failures.append(f"{case.name} in {len(pieces)} pieces: {error}")
                    break
                finally:
                    wire.connection.abort()
    assert not failures, "\n".join(failures)


def check(case: Case, seen: list[Seen], wire: Wire) -> None:
    """Raises: AssertionError unless the connection did what the case expects."""
    requests = case.expected["requests"]
    expected = [
        {key: value for key, value in request.items() if key not in ("path", "request_id")}
        for request in requests
    ]
    found = [as_expected(one) for one in seen]
    assert found == expected, f"{found} instead of {expected}"
    for one, request in zip(seen, requests, strict=True):
        if "path" in request:
            assert one.scope["path"] == request["path"]
    methods = [one.scope["method"] for one in seen]
    answers = parse_answers(wire.output, methods, ended=wire.transport.ended)
    statuses = [200] * len(requests)
    if not case.is_valid:
        statuses.append(case.expected["status"])
    found_statuses = [answer.status for answer in answers]
    assert found_statuses == statuses, f"{found_statuses} instead of {statuses}"
    ends = not case.is_valid or case.expected["closes"]
    assert wire.transport.ended == ends, f"ended: {wire.transport.ended}"
    for answer, request in zip(answers, requests, strict=False):
        if "request_id" in request:
            assert answer.headers["x-request-id"] == request["request_id"]
    if wire.transport.ended:
        assert answers[-1].headers["connection"] == "close"
