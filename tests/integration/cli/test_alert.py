"""`cordata alert`: a real SMTP server gets one mail per unit and cool-down."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from tests.integration.cli.command import cordata, write_config
from tests.integration.mail.smtp_server import Mailbox, smtp_server
from tests.servers.process import free_port

OPS, NIGHT = "ops@example.org", "night@example.org"


def config(directory: Path, port: int, cooldown_s: float = 900.0, extra: str = "") -> Path:
    return write_config(
        directory,
        f'[mail]\nhost = "127.0.0.1"\nport = {port}\nsender = "cordata@example.org"\n'
        f'[alert]\nto = ["{OPS}", "{NIGHT}"]\ncooldown_s = {cooldown_s}\n'
        f"{extra}",
    )


async def alert(unit: str, config: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, in a thread beside the mail server."""
    words = ("alert", unit, "--config", str(config))
    return await asyncio.to_thread(cordata, *words, **environment)


MONITOR = {
    "MONITOR_SERVICE_RESULT": "watchdog",
    "MONITOR_EXIT_CODE": "dumped",
    "MONITOR_EXIT_STATUS": "ABRT",
    "MONITOR_INVOCATION_ID": "0123abcd",
}


async def test_alert_mails_once_per_unit_and_kind_of_failure_and_counts_the_rest(
    tmp_path: Path,
) -> None:
    async with smtp_server(Mailbox()) as box:
        path = config(tmp_path, box.port)
        for unit in ("worker@0.service", "worker@0.service", "worker@1.service"):
            result = await alert(unit, path, **MONITOR)
            assert result.returncode == 0, result.stderr
            assert f"{unit} failed: watchdog (dumped, status ABRT)" in result.stderr
        assert len(box.got) == 2
        await alert("worker@0.service", path, **MONITOR | {"MONITOR_EXIT_STATUS": "KILL"})
        assert len(box.got) == 3
        [_, first] = box.got[0]
        assert first["To"] == "ops@example.org, night@example.org"
        assert "worker@0.service failed: watchdog" in first["Subject"]
        assert first["Auto-Submitted"] == "auto-generated"
        body = first.get_content()
        assert "journalctl _SYSTEMD_INVOCATION_ID=0123abcd" in body
        assert "  once, " in body


def test_alert_claims_no_success_when_the_unit_runs_again_already(tmp_path: Path) -> None:
    again = MONITOR | {"MONITOR_SERVICE_RESULT": "success", "MONITOR_EXIT_CODE": "exited"}
    result = cordata(
        "alert", "worker@0.service", "--config", str(write_config(tmp_path, "")), **again
    )
    assert "worker@0.service failed, and was started again" in result.stderr
    assert "success" not in result.stderr


async def test_alert_tells_how_many_were_counted_when_the_cooldown_is_over(tmp_path: Path) -> None:
    async with smtp_server(Mailbox()) as box:
        path = config(tmp_path, box.port)
        for _ in range(3):
            assert (await alert("primary.service", path)).returncode == 0
        config(tmp_path, box.port, cooldown_s=0)
        assert (await alert("primary.service", path)).returncode == 0
        assert "  3 times, " in box.got[1][1].get_content()


def test_alert_is_in_the_journal_when_the_mail_server_is_away(tmp_path: Path) -> None:
    result = cordata("alert", "primary.service", "--config", str(config(tmp_path, free_port())))
    assert result.returncode == 1
    assert "primary.service failed" in result.stderr
    assert "was not sent: 127.0.0.1" in result.stderr
    assert "Traceback" not in result.stderr


async def test_alert_is_kept_for_later_when_the_server_takes_no_recipient(tmp_path: Path) -> None:
    refused = dict.fromkeys((OPS, NIGHT), "451 later")
    async with smtp_server(Mailbox(rcpt=refused)) as box:
        path = config(tmp_path, box.port)
        result = await alert("primary.service", path)
        assert result.returncode == 1
        assert f"was not sent: 127.0.0.1:{box.port}: all recipients refused: 451" in result.stderr
        assert "ops@" not in result.stderr
        assert (tmp_path / "state/alerts.waiting").stat().st_size


async def test_alert_mails_when_the_configuration_is_what_is_broken(tmp_path: Path) -> None:
    async with smtp_server(Mailbox()) as box:
        path = config(tmp_path, box.port, extra="[http]\ndrain = 1\n")
        result = await alert("worker@0.service", path)
        assert result.returncode == 0
        assert len(box.got) == 1
        assert "[http] drain: unknown key" in result.stderr


def test_alert_needs_nobody_to_write_to(tmp_path: Path) -> None:
    result = cordata("alert", "worker@0.service", "--config", str(write_config(tmp_path)))
    assert result.returncode == 0
    assert "worker@0.service failed" in result.stderr


async def test_alert_keeps_its_promise_when_the_state_directory_cannot_be_written(
    tmp_path: Path,
) -> None:
    async with smtp_server(Mailbox()) as box:
        path = config(tmp_path, box.port)
        (tmp_path / "state").rmdir()
        (tmp_path / "state").write_text("in the way")
        for _ in range(2):
            assert (await alert("x.service", path)).returncode == 0
        assert len(box.got) == 1
