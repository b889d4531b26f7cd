"""Scrapes the metrics of a real server, and reads them with the parsers of prometheus_client."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

PATIENCE_S = 60.0
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Scrape:
    """One page."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self.families = {family.name: family for family in families}
        self.samples = [sample for one in self.families.values() for sample in one.samples]

    def values(self, name: str, **labels: str) -> list[float]:
        """Of all samples with this name and, among others, these labels."""
        return [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def total(self, name: str, **labels: str) -> float:
        """Their sum, over all processes."""
        return sum(self.values(name, **labels))


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(self._path)


def get(address: str, path: str = "/metrics", accept: str = "", method: str = "GET") -> Any:
    """Status, content type and text."""
    if address.startswith("/"):
        connection: http.client.HTTPConnection = _UnixConnection(address)
    else:
        connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers={"accept": accept} if accept else {})
        response = connection.getresponse()
        return response.status, response.headers["content-type"], response.read().decode()
    finally:
        connection.close()


def scrape(address: str, accept: str = "") -> Scrape:
    """A scrape on a fresh connection."""
    status, kind, text = get(address, accept=accept)
    assert status == 200, text
    if kind.startswith("application/openmetrics-text"):
        return Scrape(openmetrics_families(text))  # type: ignore[no-untyped-call]
    assert kind.startswith("text/plain"), kind
    return Scrape(text_string_to_metric_families(text))


def until(address: str, true: Callable[[Scrape], bool], what: str) -> Scrape:
    """The scrape, once something is true of it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            found = scrape(address)
        except OSError:  # not there yet, or its worker was killed meanwhile
            assert time.monotonic() < deadline, what
        else:
            if true(found):
                return found
            counted = {s.name: s.value for s in found.samples if s.value}
            assert time.monotonic() < deadline, (what, counted)
        time.sleep(0.1)
