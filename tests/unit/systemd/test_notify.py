"""The notifier speaks sd_notify's protocol to a real datagram socket."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.notify import fill

from cordata.systemd import Notifier, watchdog_usec


@contextmanager
def manager(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))
        sock.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        yield sock


def test_notifier_sends_one_datagram_per_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with manager(tmp_path / "n", monkeypatch) as sock, Notifier() as notifier:
        notifier.ready("ready; 0 req/s")
        assert sock.recv(4096) == b"READY=1\nSTATUS=ready; 0 req/s"
        notifier.watchdog()
        assert sock.recv(4096) == b"WATCHDOG=1"
        notifier.extend_timeout("waiting")
        assert sock.recv(4096) == b"EXTEND_TIMEOUT_USEC=30000000\nSTATUS=waiting"
        notifier.stopping()
        assert sock.recv(4096) == b"STOPPING=1\nSTATUS=stopping"


def test_notifier_sends_a_status_only_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with manager(tmp_path / "n", monkeypatch) as sock, Notifier() as notifier:
        notifier.status("ready")
        notifier.status("ready")
        notifier.status("line\nbreak\u2026")
        assert sock.recv(4096) == b"STATUS=ready"
        assert sock.recv(4096) == "STATUS=line break\u2026".encode()


def test_notifier_gives_the_moment_in_the_same_datagram_when_reloading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with manager(tmp_path / "n", monkeypatch) as sock, Notifier() as notifier:
        before = time.monotonic_ns() // 1000
        notifier.reloading()
        first, second = sock.recv(4096).decode().split("\n")
        assert first == "RELOADING=1"
        assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000


def test_change_of_state_is_sent_later_when_the_manager_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with manager(tmp_path / "n", monkeypatch) as sock, Notifier() as notifier:
        fill(str(tmp_path / "n"))
        notifier.reloading()
        notifier.status("dropped")
        notifier.ready("ready")
        notifier.watchdog()
        notifier.stopping()
        assert not notifier.flush()
        sock.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                sock.recv(4096)
        sock.settimeout(5)
        assert notifier.flush()
        assert sock.recv(4096).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert sock.recv(4096) == b"READY=1\nSTATUS=ready"
        assert sock.recv(4096) == b"STOPPING=1\nSTATUS=stopping"
        notifier.status("stopping")
        assert sock.recv(4096) == b"STATUS=stopping"


def test_notifier_does_nothing_when_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    Notifier().ready("ready")


def test_watchdog_usec_is_zero_when_meant_for_another_process() -> None:
    mine = str(os.getpid())
    assert watchdog_usec({}) == 0
    assert watchdog_usec({"WATCHDOG_USEC": "5"}) == 5
    assert watchdog_usec({"WATCHDOG_USEC": "5", "WATCHDOG_PID": mine}) == 5
    assert watchdog_usec({"WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}) == 0
    assert watchdog_usec({"WATCHDOG_USEC": "soon"}) == 0
