"""`cordata alert`: a real SMTP server gets one mail per unit and cool-down."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP
from tests.integration.cli.command import cordata, write_config
from tests.servers.process import free_port


class Mailbox:
    """Keeps what arrives."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.port = 0
        #: Answer to every recipient.
        self.rcpt = "250 OK"

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Any, to: str, options: list[str]
    ) -> str:
        if self.rcpt.startswith("250"):
            envelope.rcpt_tos.append(to)
        return self.rcpt

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append(message_from_bytes(envelope.content))
        return "250 OK"


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    """An SMTP server in a thread; aiosmtpd's own controller cannot bind port 0."""
    box = Mailbox()
    up = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        server = await loop.create_server(lambda: SMTP(box), "127.0.0.1", 0)
        box.port = server.sockets[0].getsockname()[1]
        up.set()
        await stop.wait()
        server.close()

    def run() -> None:
        loop.run_until_complete(serve())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    up.wait()
    try:
        yield box
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def config(directory: Path, port: int, cooldown_s: float = 900.0, extra: str = "") -> Path:
    return write_config(
        directory,
        f'[mail]\nhost = "127.0.0.1"\nport = {port}\nsender = "cordata@example.org"\n'
        f'[alert]\nto = ["ops@example.org", "night@example.org"]\ncooldown_s = {cooldown_s}\n'
        f"{extra}",
    )


def text_of(mail: Message) -> str:
    return mail.get_payload(decode=True).decode()  # type: ignore[union-attr]


MONITOR = {
    "MONITOR_SERVICE_RESULT": "watchdog",
    "MONITOR_EXIT_CODE": "dumped",
    "MONITOR_EXIT_STATUS": "ABRT",
    "MONITOR_INVOCATION_ID": "0123abcd",
}


def test_alert_mails_once_per_unit_and_counts_the_rest(tmp_path: Path) -> None:
    with mailbox() as box:
        path = str(config(tmp_path, box.port))
        for unit in ("worker@0.service", "worker@0.service", "worker@1.service"):
            result = cordata("alert", unit, "--config", path, **MONITOR)
            assert result.returncode == 0, result.stderr
            assert f"{unit} failed: watchdog (dumped, status ABRT)" in result.stderr
        assert len(box.mails) == 2
        first = box.mails[0]
        assert first["To"] == "ops@example.org, night@example.org"
        assert "worker@0.service failed: watchdog" in first["Subject"]
        assert first["Auto-Submitted"] == "auto-generated"
        body = text_of(first)
        assert "journalctl _SYSTEMD_INVOCATION_ID=0123abcd" in body
        assert "  once, " in body


def test_alert_claims_no_success_when_the_unit_runs_again_already(tmp_path: Path) -> None:
    again = MONITOR | {"MONITOR_SERVICE_RESULT": "success", "MONITOR_EXIT_CODE": "exited"}
    result = cordata(
        "alert", "worker@0.service", "--config", str(write_config(tmp_path, "")), **again
    )
    assert "worker@0.service failed, and was started again" in result.stderr
    assert "success" not in result.stderr


def test_alert_tells_how_many_were_counted_when_the_cooldown_is_over(tmp_path: Path) -> None:
    with mailbox() as box:
        path = str(config(tmp_path, box.port))
        for _ in range(3):
            assert cordata("alert", "primary.service", "--config", path).returncode == 0
        config(tmp_path, box.port, cooldown_s=0)
        assert cordata("alert", "primary.service", "--config", path).returncode == 0
        assert "  3 times, " in text_of(box.mails[1])


def test_alert_is_in_the_journal_when_the_mail_server_is_away(tmp_path: Path) -> None:
    result = cordata("alert", "primary.service", "--config", str(config(tmp_path, free_port())))
    assert result.returncode == 1
    assert "primary.service failed" in result.stderr
    assert "was not sent: 127.0.0.1" in result.stderr
    assert "Traceback" not in result.stderr


def test_alert_is_kept_for_later_when_the_server_takes_no_recipient(tmp_path: Path) -> None:
    with mailbox() as box:
        box.rcpt = "451 later"
        path = config(tmp_path, box.port)
        result = cordata("alert", "primary.service", "--config", str(path))
        assert result.returncode == 1
        assert f"was not sent: 127.0.0.1:{box.port}: all recipients refused: 451" in result.stderr
        assert "ops@" not in result.stderr
        assert (tmp_path / "state/alerts.waiting").stat().st_size


def test_alert_mails_when_the_configuration_is_what_is_broken(tmp_path: Path) -> None:
    with mailbox() as box:
        path = config(tmp_path, box.port, extra="[http]\ndrain = 1\n")
        result = cordata("alert", "worker@0.service", "--config", str(path))
        assert result.returncode == 0
        assert len(box.mails) == 1
        assert "[http] drain: unknown key" in result.stderr


def test_alert_needs_nobody_to_write_to(tmp_path: Path) -> None:
    result = cordata("alert", "worker@0.service", "--config", str(write_config(tmp_path)))
    assert result.returncode == 0
    assert "worker@0.service failed" in result.stderr


def test_alert_keeps_its_promise_when_the_state_directory_cannot_be_written(tmp_path: Path) -> None:
    with mailbox() as box:
        path = config(tmp_path, box.port)
        (tmp_path / "state").rmdir()
        (tmp_path / "state").write_text("in the way")
        for _ in range(2):
            assert cordata("alert", "x.service", "--config", str(path)).returncode == 0
        assert len(box.mails) == 1
