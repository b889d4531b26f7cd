"""`cordata alerts`: what a unit's failure left, and its mail when the server is back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.integration.cli.command import cordata, write_config
from tests.integration.cli.service import running, told, until
from tests.integration.mail.smtp_server import Mailbox, smtp_server
from tests.servers.process import free_port
from tests.waiting import until_async

UNIT = "worker@3.service"


def config(directory: Path, port: int) -> Path:
    return write_config(
        directory,
        '[worker]\nservices = ["engine"]\n'
        f'[mail]\nhost = "127.0.0.1"\nport = {port}\nretry_first_s = 0.1\nretry_max_s = 0.5\n'
        '[alert]\nto = ["ops@example.org"]\n',
        app="tests.integration.cli.accounts:app",
    )


async def serve_until_mailed(box: Mailbox) -> None:
    async with smtp_server(box):
        await until_async(lambda: bool(box.got))


def test_failed_unit_is_listed_and_mailed_when_the_server_is_back_and_not_before(
    tmp_path: Path,
) -> None:
    box = Mailbox(port=free_port())
    path = config(tmp_path, box.port)
    failed = cordata("alert", UNIT, "--config", str(path))
    assert failed.returncode == 1, failed
    with running(path):
        page = until(
            path, "alerts", "list", true=lambda page: page["items"] and page["items"][0]["mail"]
        )
        assert page["items"][0]["mail"] in ("pending", "sending")
        assert page["items"][0]["mailed_at"] is None
        asyncio.run(serve_until_mailed(box))
        page = until(path, "alerts", "list", true=lambda page: page["items"][0]["mail"] == "sent")
        (row,) = page["items"]
        assert (row["cause"], row["count"], row["pending"]) == (UNIT, 1, 0)
        assert row["mailed_at"]
    [(_, mail)] = box.got
    assert f"{UNIT} failed" in mail["Subject"]
    assert f"systemctl status {UNIT}" in mail.get_content()


def test_failures_of_a_unit_are_counted_by_how_it_failed_shown_and_cleared(tmp_path: Path) -> None:
    path = config(tmp_path, 9)
    where = ("--config", str(path))
    run = "6f6cbd2e4b1d4a4f9cf3a5fd1d6f0a77"
    killed = {
        "MONITOR_SERVICE_RESULT": "signal",
        "MONITOR_EXIT_CODE": "killed",
        "MONITOR_EXIT_STATUS": "KILL",
        "MONITOR_INVOCATION_ID": run,
    }
    unusable = killed | {
        "MONITOR_SERVICE_RESULT": "exit-code",
        "MONITOR_EXIT_CODE": "exited",
        "MONITOR_EXIT_STATUS": "78",
    }
    for how in (unusable, unusable, killed):
        cordata("alert", UNIT, *where, **how)
    with running(path):
        page = until(path, "alerts", "list", true=lambda page: len(page["items"]) == 2)
        counts = {row["title"]: row["count"] for row in page["items"]}
        assert counts == {
            f"{UNIT} failed: signal (killed, status KILL)": 1,
            f"{UNIT} failed: exit-code (exited, status 78)": 2,
        }
        first = cordata("alerts", "list", "--limit", "1", *where)
        assert len(first.stdout.splitlines()) == 2  # with the heads
        assert first.stderr == "there is more: raise --limit\n"
        assert "next" not in told(path, "alerts", "list")
        listed = cordata("alerts", "list", *where).stdout
        assert "PENDING" in listed
        names = [row["fingerprint"] for row in page["items"]]
        for name in names:
            assert name in listed
            text = str(told(path, "alerts", "show", name)["text"])
            assert text.startswith(f"{UNIT} failed")
            assert f"journalctl _SYSTEMD_INVOCATION_ID={run}" in text
        assert f"systemctl status {UNIT}" in cordata("alerts", "show", names[0], *where).stdout
        assert cordata("alerts", "show", "0a1b2c3d4e5f", *where).returncode == 1
        assert cordata("alerts", "clear", *where).returncode == 2
        missing = cordata("alerts", "clear", names[0], "0a1b2c3d4e5f", "--json", *where)
        assert missing.returncode == 1
        assert json.loads(missing.stdout) == {"count": 1, "missing": ["0a1b2c3d4e5f"]}

    valid = path.read_text()
    path.write_text(valid + "[http]\ndrian_s = 1\n")
    for command in (("list",), ("show", names[1])):
        shown = cordata("alerts", *command, *where)
        assert shown.returncode == 0 and f"{UNIT} failed" in shown.stdout
        assert shown.stderr.startswith(f"warning: {path}: [http] drian_s: unknown key")
    # What cannot be read at all may name another store: nothing is deleted on a guess.
    assert cordata("alerts", "clear", "--all", *where).returncode == 78
    path.write_text(valid)
    assert told(path, "alerts", "clear", "--all")["count"] == 1
