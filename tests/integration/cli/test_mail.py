"""`cordata mail`: mails of a store, and a real mail server that takes or refuses them."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from pathlib import Path

from tests.integration.cli.command import cordata, write_config
from tests.integration.cli.service import running, told, until
from tests.integration.engine.stores import url_of
from tests.integration.mail.smtp_server import Mailbox, smtp_server
from tests.servers.process import free_port

from cordata import App, Tx, connect

GUEST = "eva@example.org"
SECRET = "Room 7 is yours"
#: What a form may hold: it would rename the window of a terminal.
CONTROLS = "\x1b]0;renamed\x07"


def config_of(directory: Path, port: int, more: str = "") -> Path:
    return write_config(
        directory,
        f'[store]\nurl = "{url_of(directory)}"\n[worker]\nservices = ["engine"]\n'
        f'[mail]\nhost = "127.0.0.1"\nport = {port}\nsender = "Hub <hub@example.org>"\n'
        f"retry_first_s = 0.1\nretry_max_s = 0.2\n{more}",
        app="tests.integration.cli.accounts:app",
    )


def write_mails(config: Path, *recipients: str) -> None:
    async def unit(tx: Tx) -> None:
        for to in recipients:
            await tx.send_mail(to=[to], subject="Hello", text=f"{SECRET}\n{CONTROLS}")

    async def main() -> None:
        async with connect(App("mails"), config) as ctx:
            await ctx.run(unit)

    asyncio.run(main())


def beside(box: Mailbox, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command while the mail server runs."""

    async def main() -> subprocess.CompletedProcess[str]:
        async with smtp_server(box):
            return await asyncio.to_thread(cordata, *arguments)

    return asyncio.run(main())


def states(config: Path) -> list[str]:
    """Of all mails, the oldest first."""
    return [row["state"] for row in reversed(told(config, "mail", "list")["items"])]


def test_refused_mail_is_listed_shown_and_sent_after_a_retry(state: Path) -> None:
    box = Mailbox(port=free_port(), rcpt={GUEST: "550 no such user"})
    config = config_of(state, box.port)

    async def main() -> None:
        async with smtp_server(box):
            await asyncio.to_thread(until_failed)
            box.rcpt.clear()
            await asyncio.to_thread(retry)

    def until_failed() -> None:
        write_mails(config, GUEST, "other@example.org")
        until(config, "mail", "list", true=lambda _: states(config) == ["failed", "sent"])

    def retry() -> None:
        (failed,) = told(config, "mail", "list", "--state", "failed")["items"]
        assert failed["last_error"] == "1 of the recipients refused: 550"
        shown = cordata("mail", "show", str(failed["id"]), "--config", str(config)).stdout
        assert GUEST in shown and f"\n{SECRET}\n\\x1b]0;renamed\\x07\n" in shown
        listed = cordata("mail", "list", "--config", str(config)).stdout
        assert GUEST not in listed and "Hello" not in listed
        done = cordata("mail", "retry", str(failed["id"]), "--config", str(config))
        assert (done.returncode, done.stdout) == (0, "1 to be sent again\n"), done
        until(config, "mail", "list", true=lambda _: states(config) == ["sent", "sent"])

    with running(config):
        asyncio.run(main())
    assert sorted(to for to, _ in box.got) == [[GUEST], ["other@example.org"]]


def test_mail_that_was_given_up_has_its_whole_time_again(state: Path) -> None:
    config = config_of(state, 9, "give_up_s = 1\n")
    with running(config):
        write_mails(config, GUEST)
        until(config, "mail", "list", true=lambda _: states(config) == ["failed"])
    before = told(config, "mail", "list")["items"][0]
    assert before["last_error"] == "given up: it is too old"
    assert told(config, "mail", "retry", "--before", "1d")["count"] == 0
    assert told(config, "mail", "retry", "--all")["count"] == 1
    (after,) = told(config, "mail", "list")["items"]
    assert (after["state"], after["attempts"]) == ("pending", 0)
    assert after["created_at"] > before["created_at"]


def test_pages_follow_each_other_and_wrong_use_is_told(tmp_path: Path) -> None:
    config = config_of(tmp_path, 9)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    write_mails(config, *[f"guest{n}@example.org" for n in range(5)])
    first = told(config, "mail", "list", "--limit", "3")
    second = told(config, "mail", "list", "--limit", "3", "--after", str(first["next"]))
    assert [row["id"] for row in first["items"] + second["items"]] == [5, 4, 3, 2, 1]
    assert second["next"] is None
    for line in ("list --after x", "retry", "retry 1 --all"):
        assert cordata("mail", *line.split(), "--config", str(config)).returncode == 2, line
    for line in ("show 99", "retry 99"):
        assert cordata("mail", *line.split(), "--config", str(config)).returncode == 1, line


def test_test_mail_says_how_long_it_waited_when_the_server_says_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = config_of(tmp_path, silent.getsockname()[1], "timeout_s = 1.0\n")
        result = cordata("mail", "test", GUEST, "--config", str(config))
    assert result.returncode == 1 and "no answer within 1 s" in result.stderr, result
    assert "hint: check [mail] host and port" in result.stderr


def test_test_mail_arrives_with_the_sender_of_the_configuration(tmp_path: Path) -> None:
    box = Mailbox(port=free_port())
    config = config_of(tmp_path, box.port)
    result = beside(box, "mail", "test", GUEST, "--config", str(config))
    assert result.returncode == 0, result
    assert result.stdout == (
        f"127.0.0.1:{box.port} accepted a mail from Hub <hub@example.org> to {GUEST}\n"
    )
    ((recipients, mail),) = box.got
    assert recipients == [GUEST]
    assert mail["From"] == "Hub <hub@example.org>"
    assert "Test mail" in mail["Subject"]


def test_test_mail_says_why_the_server_does_not_take_it(tmp_path: Path) -> None:
    refusing = Mailbox(port=free_port(), rcpt={GUEST: "550 no such user"})
    config = config_of(tmp_path, refusing.port)
    refused = beside(refusing, "mail", "test", GUEST, "--config", str(config))
    assert refused.returncode == 1
    assert "recipient refused: 550" in refused.stderr
    rejecting = Mailbox(port=refusing.port, data=["554 spam"])
    rejected = beside(rejecting, "mail", "test", GUEST, "--config", str(config))
    assert (rejected.returncode, "refused: 554" in rejected.stderr) == (1, True), rejected
    away = cordata("mail", "test", GUEST, "--config", str(config))
    assert (away.returncode, "firewall" in away.stderr) == (1, True), away
    no_address = cordata("mail", "test", "nobody", "--config", str(config))
    assert (no_address.returncode, "not an e-mail address" in no_address.stderr) == (1, True)
    config.write_text(config.read_text().replace('host = "127.0.0.1"', 'host = ""'))
    assert cordata("mail", "test", GUEST, "--config", str(config)).returncode == 78


def test_json_of_one_mail_is_complete(tmp_path: Path) -> None:
    config = config_of(tmp_path, 9)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    write_mails(config, GUEST)
    shown = cordata("mail", "show", "1", "--json", "--config", str(config))
    record = json.loads(shown.stdout)
    assert (record["to"], record["remaining"]) == ([GUEST], [GUEST])
    assert (record["subject"], record["has_html"]) == ("Hello", False)
    assert record["text"] == f"{SECRET}\n{CONTROLS}"
