"""A request with a traceparent, through a real `cordata server`, and `cordata trace` of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.integration.cli.command import cordata, write_config
from tests.integration.cli.service import until
from tests.integration.engine.stores import url_of
from tests.integration.server.running import PATIENCE_S, Server, forked_server
from tests.integration.trace.traced import seen
from tests.servers.fixtures import Servers

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"
#: What a whole run leaves in the store, without times: step, group or type, attempt.
CHAIN = {
    ("published", "order.made", None),
    ("published", "order.packed", None),
    ("published", "order.sent", None),
    ("handled", "shop.pack", 1),
    ("handled", "shop.send", 2),
    ("failed", "shop.bill", 1),
    ("dead", "shop.bill", 1),
    ("mail", None, None),
    ("mail pending", None, 0),
}
PLACES = {"request", "pack", "child", "bill", "send 1", "send 2"}


@contextmanager
def running(state: Path, more: str = "") -> Iterator[tuple[Path, Server]]:
    """Configuration and server, with two workers."""
    text = f'[store]\nurl = "{url_of(state)}"\n[engine]\nretry_first_s = 0.1\n{more}'
    config = write_config(state, text, app="tests.integration.trace.traced:app")
    environment = {"SEEN": str(state / "seen")}
    with forked_server(None, "--config", str(config), app=None, environment=environment) as started:
        started.ready()
        yield config, started


def post(at: Server, headers: Mapping[str, str]) -> tuple[str, str]:
    """Makes an order. Returns request id and event id."""
    url = at.ready().split()[0] + "/order"
    request = Request(url, data=b"{}", headers=dict(headers), method="POST")
    with urlopen(request, timeout=PATIENCE_S) as response:
        assert response.status == 201
        return response.headers["x-request-id"], response.read().decode()


def chain(found: Mapping[str, Any]) -> set[tuple[str, str | None, int | None]]:
    return {
        (step["step"], step.get("group") or step.get("type"), step.get("attempt"))
        for step in found["steps"]
        if step["step"] != "log"
    }


def is_whole(found: Mapping[str, Any]) -> bool:
    return chain(found) == CHAIN


def whole(config: Path, id_: str) -> Any:
    """What `cordata trace` prints, once all is done; nothing else is in it then."""
    return until_traced(config, id_, is_whole)


def until_traced(config: Path, id_: str, true: Callable[[Any], bool]) -> Any:
    return until(config, "trace", id_, true=true)


def check_places(state: Path, request_id: str, trace_id: str, *, sampled: bool) -> None:
    """Every place knew its request and its trace, and was a span of its own."""
    noted = [one for one in seen(state / "seen") if one["request_id"] == request_id]
    assert {one["place"] for one in noted} == PLACES
    assert {one["trace_id"] for one in noted} == {trace_id}
    assert {one["sampled"] for one in noted} == {sampled}
    spans = {one["place"]: one["span_id"] for one in noted}
    assert len(set(spans.values())) == len(PLACES)
    parents = {one["place"]: one["parent_id"] for one in noted}
    assert parents["pack"] == parents["bill"] == spans["request"]
    if sampled:
        assert parents["request"] == SPAN
        assert parents["child"] == parents["send 1"] == parents["send 2"] == spans["pack"]


def check_chain(config: Path, state: Path, at: Server) -> None:
    request_id, event_id = post(at, {"traceparent": GIVEN, "X-Request-ID": "order-4711"})
    other_id, other_event = post(at, {})
    assert request_id == "order-4711" and re.fullmatch("[0-9a-f]{32}", other_id)
    by_id = whole(config, request_id)
    assert by_id["request_ids"] == [request_id] and by_id["trace_ids"] == [TRACE]
    for id_ in (event_id, TRACE, GIVEN):
        assert whole(config, id_)["steps"] == by_id["steps"], id_
    other = whole(config, other_id)
    assert other["request_ids"] == other["trace_ids"] == [other_id]
    assert whole(config, other_event)["steps"] == other["steps"] != by_id["steps"]
    times = [step["at"] for step in by_id["steps"] if "at" in step]
    assert times == sorted(times)
    order = [(step["step"], step.get("group") or step.get("type")) for step in by_id["steps"]]
    assert order.index(("published", "order.made")) == 0
    assert order.index(("handled", "shop.pack")) < order.index(("handled", "shop.send"))
    check_places(state, request_id, TRACE, sampled=True)
    check_places(state, other_id, other_id, sampled=False)


def test_request_is_followed_through_all_processes(state: Path) -> None:
    with running(state) as (config, at):
        check_chain(config, state, at)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_request_is_followed_through_redis(
    store: str, request: pytest.FixtureRequest, tmp_path: Path, servers: Servers
) -> None:
    from tests.integration.engine.stores import prepared

    state = prepared(store, request, tmp_path, new=True)
    with running(state, f'[broker]\nurl = "{servers.redis().url}"\n') as (config, at):
        check_chain(config, state, at)


def test_text_names_each_step_and_nobody(state: Path) -> None:
    with running(state) as (config, at):
        request_id, event_id = post(at, {"traceparent": GIVEN})
        whole(config, request_id)
        shown = cordata("trace", request_id, "--config", str(config))
    assert shown.returncode == 0, shown
    head, trace, columns, first, *rest = shown.stdout.splitlines()
    assert head == f"request {request_id}" and trace == f"trace {TRACE}"
    assert columns.split() == ["AT", "AFTER", "STEP", "WHAT"]
    assert re.fullmatch(
        rf"20\S+Z +\+0\.000 s +published +order\.made {event_id}", first.rstrip()
    ), first
    assert re.search(
        r"^20\S+Z +\+\d+\.\d{3} s +dead +shop\.bill, attempt 1$", "\n".join(rest), re.M
    )
    assert re.search(r" failed +shop\.bill, attempt 1, KeyError$", "\n".join(rest), re.M)
    for secret in ("Eva", "Muster", "eva@example.org", "stamp"):
        assert secret not in shown.stdout + shown.stderr


def test_invalid_traceparent_begins_a_trace_of_its_own(state: Path) -> None:
    with running(state) as (config, at):
        for invalid in ("", "00-x", f"00-{'0' * 32}-{SPAN}-01", "0" * 300):
            request_id, _ = post(at, {"traceparent": invalid})
            found = until_traced(config, request_id, lambda found: len(found["steps"]) > 1)
            assert found["trace_ids"] == [request_id]


def test_unknown_id_is_an_error_with_the_next_step(state: Path) -> None:
    with running(state) as (config, at):
        request_id, _ = post(at, {})
        for id_ in ("0" * 32, "%", "_" * 32, request_id[:-1], "it's"):
            missing = cordata("trace", id_, "--config", str(config))
            assert missing.returncode == 1 and missing.stdout == "", missing
            text = f"nothing is known of {id_} since 7d ago: no event and no mail"
            assert text in missing.stderr
            assert "access_log" in missing.stderr and "output of `cordata server`" in missing.stderr
        # As of a variable of the shell that is not set: it is no id, and not that of all others.
        empty = cordata("trace", "", "--config", str(config))
        assert (empty.returncode, empty.stdout) == (2, ""), empty
        future = cordata("trace", request_id, "--since", "2099-01-01", "--config", str(config))
        assert future.returncode == 1
