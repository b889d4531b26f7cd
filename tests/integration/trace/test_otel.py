"""Spans of a real `cordata server`, exported by OpenTelemetry's own SDK."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.command import cordata, write_config
from tests.integration.server.running import Server, server
from tests.integration.trace.test_trace import GIVEN, SPAN, TRACE, post, whole
from tests.integration.trace.traced import seen

pytest.importorskip("opentelemetry.sdk", reason="Debian has no package of it")

NAMES = {"POST", "shop.pack", "shop.bill", "shop.send", "render"}


@contextmanager
def exporting(directory: Path, **environment: str) -> Iterator[tuple[Path, Server]]:
    """Configuration and server, whose workers write their spans to stdout."""
    config = write_config(
        directory,
        "[trace]\nexport = true\n[engine]\nretry_first_s = 0.1\n",
        app="tests.integration.trace.traced:app",
    )
    environment = {
        "SEEN": str(directory / "seen"),
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        **environment,
    }
    with server(None, "--config", str(config), app=None, environment=environment) as started:
        started.ready()
        yield config, started


def spans(at: Server) -> list[dict[str, Any]]:
    """What was exported so far: the SDK writes JSON over several lines."""
    decoder, text, found = json.JSONDecoder(), "\n".join(at.out), []
    begin = text.find("{\n")
    while begin >= 0:
        try:
            one, end = decoder.raw_decode(text, begin)
        except ValueError:  # not all of it is there yet
            break
        found.append(one)
        begin = text.find("{\n", end)
    return found


def by_trace(at: Server, trace_id: str) -> list[dict[str, Any]]:
    return [one for one in spans(at) if one["context"]["trace_id"] == f"0x{trace_id}"]


def until_exported(at: Server, trace_id: str, count: int) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = at.until(
        lambda: found if len(found := by_trace(at, trace_id)) >= count else None,
        f"{count} spans of {trace_id}",
    )
    assert len(result) == count, result
    return result


def check(found: list[dict[str, Any]], noted: Mapping[str, Mapping[str, Any]]) -> None:
    """The ids of spans are those that the application saw; each has the parent it should."""
    assert {one["name"] for one in found} == NAMES
    ids = {one["name"]: one["context"]["span_id"] for one in found}
    for name, place in (("POST", "request"), ("shop.pack", "pack"), ("render", "child")):
        assert ids[name] == f"0x{noted[place]['span_id']}", name
    parents = {one["name"]: one["parent_id"] for one in found}
    assert parents["shop.pack"] == parents["shop.bill"] == ids["POST"]
    errors = {
        (one["name"], one["status"].get("description"))
        for one in found
        if one["status"]["status_code"] == "ERROR"
    }
    assert errors == {("shop.bill", "KeyError"), ("shop.send", "ValueError")}
    for one in found:
        assert one["start_time"] < one["end_time"]
        assert one["resource"]["attributes"]["service.name"] == "shop"
        assert "Muster" not in json.dumps(one)


def test_spans_are_exported_with_the_ids_of_the_trace(tmp_path: Path) -> None:
    with exporting(tmp_path) as (config, at):
        given, _ = post(at, {"traceparent": GIVEN})
        own, _ = post(at, {})
        not_sampled, _ = post(at, {"traceparent": f"00-{'7' * 32}-{SPAN}-00"})
        for request_id in (given, own, not_sampled):
            whole(config, request_id)
        # Request, three attempts that end well or not, the second of one group, and the call.
        of_given = until_exported(at, TRACE, 6)
        of_own = until_exported(at, own, 6)
        noted = seen(tmp_path / "seen")
        for request_id, found in ((given, of_given), (own, of_own)):
            check(found, {one["place"]: one for one in noted if one["request_id"] == request_id})
        [begun] = [one for one in of_given if one["name"] == "POST"]
        assert begun["parent_id"] == f"0x{SPAN}"
        assert begun["attributes"]["http.response.status_code"] == 201
        [begun] = [one for one in of_own if one["name"] == "POST"]
        assert begun["parent_id"] is None
        assert not by_trace(at, "7" * 32)
        assert {one["sampled"] for one in noted if one["request_id"] == own} == {True}


def test_sampler_and_resource_are_those_of_the_environment_when_it_names_them(
    tmp_path: Path,
) -> None:
    environment = {
        "OTEL_TRACES_SAMPLER": "parentbased_always_off",
        "OTEL_RESOURCE_ATTRIBUTES": "service.namespace=alps,service.instance.id=mine",
    }
    with exporting(tmp_path, **environment) as (config, at):
        own, _ = post(at, {})
        given, _ = post(at, {"traceparent": GIVEN})
        for request_id in (own, given):
            whole(config, request_id)
        for span in until_exported(at, TRACE, 6):
            attributes = span["resource"]["attributes"]
            assert attributes["service.name"] == "shop"
            assert attributes["service.namespace"] == "alps"
            assert attributes["service.instance.id"] == "mine"
        assert not by_trace(at, own)


def test_missing_exporter_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    config = write_config(
        tmp_path,
        '[trace]\nexport = true\n[worker]\nservices = ["engine"]\n',
        app="tests.integration.trace.traced:app",
    )
    failed = cordata(
        *("worker", "0", "--config", str(config)),
        **{"SEEN": os.devnull, "OTEL_TRACES_EXPORTER": "nowhere", "NOTIFY_SOCKET": ""},
    )
    assert failed.returncode == 78, failed
    assert "exporter 'nowhere' is not installed" in failed.stderr
