"""The mail service against a real SMTP server: once each, retried, given up, after a crash."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.integration.engine.children import child
from tests.integration.engine.parts import opened, rows, until
from tests.integration.mail.smtp_server import Mailbox, smtp_server
from tests.integration.primary.primary import build, running
from tests.servers.process import free_port

from cordata.app import App
from cordata.config.sections import MailConfig
from cordata.core.inline_image import InlineImage
from cordata.heartbeat import Heartbeat
from cordata.mail.smtp import send_now
from cordata.services.mail import MailService
from cordata.store import Row, Store, Tx

PROCESS = "tests.integration.primary.primary"


def config_of(box: Mailbox, **more: float) -> MailConfig:
    return MailConfig(
        host="127.0.0.1",
        port=box.port,
        retry_first_s=0.02,
        retry_max_s=0.1,
        timeout_s=30.0,
        **more,  # type: ignore[arg-type]
    )


async def send(store: Store, *to: str, count: int = 1, subject: str = "Report") -> list[str]:
    async def unit(tx: Tx) -> list[str]:
        return [
            await tx.send_mail(
                to=to or ("a@hotel.example",), subject=subject, text="Hi", html="<p>"
            )
            for _ in range(count)
        ]

    return await store.run(unit)


async def test_mail_is_sent_once_when_its_unit_committed(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "cordata")
    async with opened(state) as store, smtp_server(Mailbox()) as box:
        async with running(build(store, state, App("p"), mail=config_of(box))):
            ids = await send(store, "a@hotel.example", "Desk <b@hotel.example>", count=20)
            await until(lambda: _states(store, sent=20))
    assert sorted(box.ids) == sorted(ids)
    recipients, mail = box.got[0]
    assert recipients == ["a@hotel.example", "b@hotel.example"]
    assert mail["From"] == "cordata@localhost"
    assert mail["To"] == "a@hotel.example, Desk <b@hotel.example>"
    assert "hotel.example" not in caplog.text
    assert "Report" not in caplog.text


async def test_mail_brings_the_pictures_of_its_html(state: Path) -> None:
    picture = InlineImage("chart", "image/png", bytes(range(256)))

    async def unit(tx: Tx) -> None:
        html = '<img src="cid:chart">'
        await tx.send_mail(to=["a@x.example"], subject="s", text="t", html=html, inline=[picture])

    async with opened(state) as store, smtp_server(Mailbox()) as box:
        async with running(build(store, state, App("p"), mail=config_of(box))):
            await store.run(unit)
            await until(lambda: _states(store, sent=1))
    [(_, mail)] = box.got
    [part] = [part for part in mail.walk() if part.get_content_type() == "image/png"]
    assert (part["Content-ID"], part.get_content()) == ("<chart>", picture.data)


async def test_mail_waits_when_no_server_is_configured(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        async with running(build(store, tmp_path, App("p"))):
            await send(store)
            await asyncio.sleep(0.05)
        assert await _states(store, pending=1)


async def test_mail_is_tried_again_when_the_server_refuses_it_for_now(state: Path) -> None:
    async with opened(state) as store:
        async with smtp_server(Mailbox(data=["451 later", "452 later"])) as box:
            async with running(build(store, state, App("p"), mail=config_of(box))):
                await send(store)
                await until(lambda: _states(store, sent=1))
        (row,) = await rows(store, "mails")
    assert row["attempts"] == 3
    assert len(box.got) == 1


async def test_mail_fails_at_once_when_the_server_refuses_it_for_good(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        async with smtp_server(Mailbox(data=["554 no"])) as box:
            async with running(build(store, tmp_path, App("p"), mail=config_of(box))):
                await send(store, count=2)
                await until(lambda: _states(store, sent=1, failed=1))
        assert sum(row["attempts"] for row in await rows(store, "mails")) == 2


async def test_mail_fails_at_once_when_it_is_too_large_for_the_server(tmp_path: Path) -> None:
    async with opened(tmp_path) as store, smtp_server(Mailbox(max_bytes=2000)) as box:
        async with running(build(store, tmp_path, App("p"), mail=config_of(box))):
            await send(store, subject="long " * 1000)
            await until(lambda: _states(store, failed=1))
        (row,) = await rows(store, "mails")
    assert (row["attempts"], row["last_error"]) == (1, "refused: 552")


async def test_each_recipient_gets_it_once_when_one_is_refused_for_now_and_one_for_good(
    state: Path,
) -> None:
    async with opened(state) as store:
        box = Mailbox(rcpt={"later@x.example": "450 later", "gone@x.example": "550 gone"})
        async with smtp_server(box):
            async with running(build(store, state, App("p"), mail=config_of(box))):
                await send(store, "ok@x.example", "later@x.example", "gone@x.example")
                await until(lambda: _attempts(store, 3))
                del box.rcpt["later@x.example"]
                await until(lambda: _states(store, sent=1))
    assert [to for to, _ in box.got] == [["ok@x.example"], ["later@x.example"]]
    assert len(set(box.ids)) == 1


async def test_mail_fails_when_all_recipients_are_refused_for_good(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        async with smtp_server(Mailbox(rcpt={"a@hotel.example": "550 gone"})) as box:
            async with running(build(store, tmp_path, App("p"), mail=config_of(box))):
                await send(store)
                await until(lambda: _states(store, failed=1))
        (row,) = await rows(store, "mails")
        assert "hotel" not in row["last_error"]


@pytest.mark.parametrize("to", ["a@b\r\nRCPT TO:<x@y>", "eva@hotel..example", "=?x?q?@y?=.example"])
async def test_mail_fails_alone_when_its_address_is_malformed(tmp_path: Path, to: str) -> None:
    async with opened(tmp_path) as store, smtp_server(Mailbox()) as box:
        async with running(build(store, tmp_path, App("p"), mail=config_of(box))):
            await send(store, to)
            await send(store)
            await until(lambda: _states(store, sent=1, failed=1))
    assert [to for to, _ in box.got] == [["a@hotel.example"]]


async def test_mail_is_sent_when_the_server_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    box = Mailbox(port=free_port())
    async with opened(tmp_path) as store:
        primary = build(store, tmp_path, App("p"), mail=config_of(box))
        (mail,) = [one for one in primary.services if one.name == "mail"]
        async with running(primary):
            await send(store, count=3)
            await until(lambda: mail.status() != "")
            assert f"mail waits for the server 127.0.0.1:{box.port}: " in caplog.text
            assert {row["attempts"] for row in await rows(store, "mails")} == {0}
            async with smtp_server(box):
                await until(lambda: _states(store, sent=3))
                await until(lambda: mail.status() == "")


async def test_next_mail_does_not_wait_for_a_server_that_does_not_answer_quit(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store, smtp_server(Mailbox(frozen={"QUIT"})) as box:
        config = dataclasses.replace(config_of(box), timeout_s=3600.0)
        async with running(build(store, tmp_path, App("p"), mail=config)):
            for count in (1, 2):
                await send(store)
                await until(lambda sent=count: _states(store, sent=sent))  # type: ignore[misc]
                await box.waits.wait()  # for the answer to QUIT
                box.waits.clear()


async def test_conversation_ends_when_it_is_cancelled() -> None:
    """Else the stop of the primary waits for a server that is frozen, and systemd kills it."""
    async with smtp_server(Mailbox(frozen={"DATA", "QUIT"})) as box:
        config = dataclasses.replace(config_of(box), timeout_s=3600.0)
        sending = asyncio.create_task(
            send_now(config, None, to=["a@hotel.example"], subject="Report", text="Hi")
        )
        await box.waits.wait()
        sending.cancel()
        await asyncio.wait([sending], timeout=60.0)
        assert sending.cancelled()


async def test_mail_is_given_up_when_it_is_too_old(state: Path) -> None:
    async with opened(state) as store:
        async with smtp_server(Mailbox(data=["451 later"] * 1000)) as box:
            config = config_of(box, give_up_s=0.3)
            async with running(build(store, state, App("p"), mail=config)):
                await send(store)
                await until(lambda: _states(store, failed=1))
    assert box.got == []


async def test_primary_is_alive_while_it_gives_up_many_mails(tmp_path: Path) -> None:
    class Counting(Heartbeat):
        touches = 0

        def touch(self) -> None:
            self.touches += 1

    async with opened(tmp_path) as store:
        await send(store, count=20)
        age = {"at": 0, "state": "pending", "subject": "Report"}
        await store.run(lambda tx: tx.execute("age_mail", **age))
        service = MailService(store, MailConfig(host="127.0.0.1", port=9))
        service.heartbeat = heartbeat = Counting()
        await service.run_once(asyncio.Event())
        assert await _states(store, failed=20)
        assert heartbeat.touches >= 20


async def test_mail_is_sent_once_more_with_its_id_when_its_sender_was_killed(
    state: Path,
) -> None:
    """kill -9 after the server took the mail and before the row says so: the one window."""
    async with opened(state) as store, smtp_server(Mailbox()) as box:
        ids = await send(store, count=5)
        async with child(PROCESS, state, box.port) as first:

            def kill() -> None:
                if len(box.got) == 3:
                    first.kill()

            box.on_mail = kill
            assert await first.ended() == -signal.SIGKILL
        assert await _states(store, sent=2, sending=1, pending=2)
        async with child(PROCESS, state, box.port) as second:
            await until(lambda: _states(store, sent=5))
            assert await second.stop() == 0
    counts = Counter(box.ids)
    assert sorted(counts.values()) == [1, 1, 1, 1, 2]
    assert counts.keys() == set(ids)


async def _mails(store: Store) -> list[Row]:
    return await rows(store, "mails")


async def _states(store: Store, **counts: int) -> bool:
    return Counter(row["state"] for row in await _mails(store)) == Counter(counts)


async def _attempts(store: Store, count: int) -> bool:
    return any(row["attempts"] >= count for row in await _mails(store))
