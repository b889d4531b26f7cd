"""Fuzzed bytes: always well-formed answers or the end, never an exception, and one meaning.

Three oracles: the same bytes cut differently are judged the same; what is accepted is what h11
reads in it; what a client gets back is well-formed to the last byte.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvloop
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.http.corpus import as_expected, load
from tests.unit.http.wire import CORPUS_CONFIG, Recorder, Wire, connect, parse_answers, serving

CASES = [case.data for case in load("valid") + load("invalid") if len(case.data) < 700]
_NASTY = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"\r\n ",
    b"Host: b\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b"0\r\n\r\n",
    b"3\r\nabc\r\n",
    b"HTTP/1.1",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\xff",
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """One or two cases of the corpus, with a few bytes removed, doubled, inserted or replaced."""
    data = draw(st.sampled_from(CASES))
    if draw(st.booleans()):
        data += draw(st.sampled_from(CASES))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 8))
        new = draw(
            st.sampled_from([b"", data[at : at + size] * 2])
            | st.sampled_from(_NASTY)
            | st.binary(max_size=3)
        )
        data = data[:at] + new + data[at + size :]
    return data


async def judge(data: bytes, cuts: list[int]) -> tuple[list[dict[str, Any]], list[int], bool]:
    """(requests seen, statuses answered, ended) for the bytes cut at the given places."""
    app = Recorder()
    async with serving(app, CORPUS_CONFIG) as server:
        wire = connect(server)
        edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
        await wire.feed(*(data[edges[i] : edges[i + 1]] for i in range(len(edges) - 1)))
        seen = [as_expected(one) for one in app.seen]
        ended = wire.transport.ended
        statuses = answered(wire, [request["method"] for request in seen])
        await hang_up(wire)
    return seen, statuses, ended


def answered(wire: Wire, methods: list[str]) -> list[int]:
    """The statuses; a request refused after a HEAD line gets no body, as the client expects."""
    for last in ("GET", "HEAD"):
        try:
            answers = parse_answers(wire.output, [*methods, last], ended=wire.transport.ended)
        except AssertionError:
            if last == "HEAD":
                raise
        else:
            return [answer.status for answer in answers]
    raise AssertionError


async def hang_up(wire: Wire) -> None:
    """The client closes its side: nothing may be left open."""
    if not wire.transport.closing:
        if not wire.connection.eof_received():
            wire.transport.close()
        await wire.settle()
        assert wire.transport.closing


def run(data: bytes, cuts: list[int]) -> tuple[list[dict[str, Any]], list[int], bool]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(judge(data, cuts))


def read_by_h11(data: bytes) -> list[tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]]:
    """The requests that h11 finds before its first error: (method, target, headers, body)."""
    found: list[tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]] = []
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(data)
    try:
        while True:
            happened = reader.next_event()
            if isinstance(happened, h11.Request):
                head = (happened.method, happened.target, list(happened.headers))
                body = b""
            elif isinstance(happened, h11.Data):
                body += bytes(happened.data)
            elif isinstance(happened, h11.EndOfMessage):
                found.append((*head, body))
                reader.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                reader.send(h11.EndOfMessage())
                reader.start_next_cycle()
                reader.receive_data(b"")
            else:
                return found
    except (h11.RemoteProtocolError, h11.LocalProtocolError):
        return found


def as_h11_has(name: str, value: str) -> bytes:
    """h11 writes the value of Transfer-Encoding in lower case."""
    return (value.lower() if name == "transfer-encoding" else value).encode("latin-1")


@settings(
    max_examples=examples(400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    database=None,
)
@given(mutated(), st.lists(st.integers(0, 2000), min_size=1, max_size=6))
def test_mutated_requests_have_one_meaning(data: bytes, cuts: list[int]) -> None:
    seen, statuses, ended = run(data, [])
    event(f"{len(seen)} accepted, last {statuses[-1] if statuses else None}")
    assert run(data, cuts) == (seen, statuses, ended)
    assert statuses[: len(seen)] == [200] * len(seen)
    assert len(statuses) <= len(seen) + 1
    if len(statuses) > len(seen):
        assert statuses[-1] >= 400 and ended
    for ours, theirs in zip(seen, read_by_h11(data), strict=False):
        method, target, headers, body = theirs
        assert ours["method"].encode() == method
        assert ours.get("body", "").encode("latin-1") == body
        if target.startswith((b"/", b"*")):
            # ASGI cannot tell an empty query from none
            assert ours["target"].encode() == target.removesuffix(b"?") or b"??" in target
            assert [(n.encode(), as_h11_has(n, v)) for n, v in ours["headers"]] == headers


@settings(max_examples=examples(200), deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=300), st.lists(st.integers(0, 300), min_size=1, max_size=4))
def test_random_bytes_have_one_meaning(data: bytes, cuts: list[int]) -> None:
    assert run(data, cuts) == run(data, [])
