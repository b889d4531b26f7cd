"""From an error to a mail: grouped, held back, kept while the mail server or the store is away."""

from __future__ import annotations

import asyncio
import string
from pathlib import Path
from typing import Any, cast

from tests.integration.alert.alerts import (
    OPS,
    mail_count,
    mail_of,
    primary,
    process,
    rows_of,
    service,
    stored,
)
from tests.integration.engine.parts import opened, until
from tests.integration.mail.smtp_server import Mailbox, smtp_server
from tests.integration.store.parts import fill, needs_root, small_disk
from tests.servers.process import free_port

from cordata import clock, events
from cordata.alert import RETRY_S, Buffer, Cooldown, Spool
from cordata.config import Config
from cordata.config.sections import AlertConfig, EngineConfig, MailConfig, PathsConfig
from cordata.core.alert import AlertGroup, group_of
from cordata.log import fields, logger
from cordata.services.alert import AlertService
from cordata.services.retention import RetentionService
from cordata.store import Store
from cordata.wiring.role import alerting

NOBODY = MailConfig()


def guest_error(one: int) -> str:
    return f"guest anna{one}@example.com: password=hunter{one} was refused"


async def test_errors_of_a_kind_are_one_mail_without_what_is_private(state: Path) -> None:
    config = AlertConfig(to=OPS, count=3)
    async with opened(state) as store, smtp_server(Mailbox()) as box:
        mail = mail_of(box)
        one = process(store, state, config, mail)
        async with service(store, state, config, mail, one):
            for number in range(14):
                one.log.error("%s", guest_error(number), extra=fields(alert="refused"))
            one.log.error("something else", extra=fields(alert="other"))
            await until(lambda: len(box.got) >= 1)
        alerts = await stored(store)
    ((recipients, message),) = box.got
    text = message.get_content()
    assert recipients == list(OPS)
    assert "14 times" in text
    assert "last at host worker@0" in text
    assert "guest …: password=… was refused" in text
    assert "something else" not in text  # it waits for more of its kind
    assert not any(word in message.as_string() for word in ("anna", "hunter"))
    assert alerts["something else"]["pending"] == 1
    assert not any("hunter" in str(dict(row)) for row in alerts.values())


async def test_mail_waits_in_the_outbox_while_the_server_is_away(state: Path) -> None:
    async with opened(state) as store:
        box = Mailbox(port=free_port())  # and nobody there
        config, mail = AlertConfig(to=OPS, count=1), mail_of(box)
        one = process(store, state, config, mail)
        async with service(store, state, config, mail, one):
            one.log.error("it broke", extra=fields(alert="broke"))
            await until(lambda: _mails(store, 1))
            assert box.got == []
            async with smtp_server(box):
                await until(lambda: len(box.got) >= 1)
    assert "it broke" in box.got[0][1].get_content()


async def test_mail_tells_all_that_is_due_and_then_the_cooldown_holds(state: Path) -> None:
    config = AlertConfig(to=OPS, count=1, cooldown_s=900.0)
    async with opened(state) as store:
        one = process(store, state, config, NOBODY)
        mail = MailConfig(host="127.0.0.1", port=9)
        async with primary(store, state, config, mail) as mails:
            for cause in ("a", "b", "c"):
                one.log.error("%s failed", cause, extra=fields(alert=cause))
            await one.service.run_once()
            assert await mails.run_once() == 0.0
            one.log.error("a failed", extra=fields(alert="a"))
            await one.service.run_once()
            assert await mails.run_once() > 800.0
            assert await mail_count(store) == 1
        rows = {row["cause"]: row for row in await rows_of(store)}
    assert {cause: row["pending"] for cause, row in rows.items()} == {
        "app-a": 1,
        "app-b": 0,
        "app-c": 0,
    }


async def test_mail_goes_to_a_mailbox_of_the_host_when_it_is_a_bare_name(tmp_path: Path) -> None:
    async with opened(tmp_path) as store, smtp_server(Mailbox()) as box:
        config, mail = AlertConfig(to=("root",), count=1), mail_of(box)
        one = process(store, tmp_path, config, mail)
        async with service(store, tmp_path, config, mail, one):
            one.log.error("it broke")
            await until(lambda: len(box.got) >= 1)
    assert box.got[0][0] == ["root@localhost"]


async def test_mails_are_limited_in_an_hour_whatever_they_are_about(state: Path) -> None:
    config = AlertConfig(to=OPS, count=1, max_per_hour=2)
    async with opened(state) as store:
        one = process(store, state, config, NOBODY)
        async with primary(store, state, config, MailConfig(host="127.0.0.1", port=9)) as mails:
            for number in range(4):
                one.log.error("failed", extra=fields(alert=f"cause {number}"))
                await one.service.run_once()
                await mails.run_once()
            assert await mail_count(store) == 2
            assert 3000.0 < await mails.run_once() <= 3600.0


async def test_alerts_of_two_processes_are_one_kind(state: Path) -> None:
    config = AlertConfig(to=OPS)
    async with opened(state) as store:
        processes = [process(store, state, config, NOBODY) for _ in range(2)]
        for one in processes:
            for _ in range(50):
                one.log.error("a handler failed")
                one.log.error("another failed")
        await asyncio.gather(*(one.service.run_once() for one in processes))
        counts = [row["count"] for row in await rows_of(store)]
    assert counts == [100, 100]


async def test_kind_that_did_not_come_again_is_forgotten(state: Path) -> None:
    old = group_of("old", "old", place="host", now_us=1, urgent=False)
    async with opened(state) as store:
        one = process(store, state, AlertConfig(), NOBODY)
        one.buffer.add([old])
        one.log.error("new")
        await one.service.run_once()
        retention = RetentionService(store, EngineConfig(), MailConfig())
        deleted = await retention.run_once(asyncio.Event())
        assert deleted["alerts"] == 1
        assert [row["title"] for row in await rows_of(store)] == ["new"]


async def test_what_waited_in_the_file_is_stored_once(state: Path) -> None:
    config = AlertConfig(to=OPS)
    Spool([state]).add([_failed("worker@0.service")] * 2)
    async with opened(state) as store:
        one = process(store, state, config, NOBODY, sweeps=True)
        assert await one.service.run_once()
        assert await one.service.run_once()
        (row,) = await rows_of(store)
    assert (row["count"], row["pending"], row["urgent"]) == (2, 2, 1)


@needs_root
def test_each_alert_is_in_a_file_when_the_disk_has_room_for_a_part_of_one(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="64k") as disk:
        spool, count = Spool([disk, tmp_path]), 1
        spool.add([_failed("worker@0.service")])
        fill(disk / "filler")
        # The file's last page has some room left.
        while not (tmp_path / "alerts.waiting").exists():
            spool.add([_failed(f"worker@{count}.service")])
            count += 1
        (disk / "filler").unlink()
        spool.add([_failed(f"worker@{count}.service")])
        with spool.taken() as groups:
            causes = sorted(group.cause for group in groups)
    assert causes == sorted(f"worker@{number}.service" for number in range(count + 1))


def _failed(unit: str) -> AlertGroup:
    return group_of(unit, f"{unit} failed", place="host", now_us=1, urgent=True)


async def test_alert_is_stored_once_when_those_of_the_file_cannot_be(state: Path) -> None:
    broken = group_of("broken", "no row", place="host", now_us=1, urgent=True)
    broken.count = 2**63  # no row can hold it
    Spool([state]).add([broken])
    async with opened(state) as store:
        one = process(store, state, AlertConfig(to=OPS), NOBODY, sweeps=True)
        one.log.error("once")
        for _ in range(2):
            assert not await one.service.run_once()
        (row,) = await rows_of(store)
    assert (row["title"], row["count"]) == ("once", 1)


async def test_alerts_are_kept_and_the_urgent_mailed_while_the_store_is_away(
    tmp_path: Path,
) -> None:
    config = AlertConfig(to=OPS, count=2, wait_s=300.0)
    async with smtp_server(Mailbox()) as box:
        async with opened(tmp_path) as store:
            one = process(store, tmp_path, config, mail_of(box))
        for cause in ("twice", "twice", "once"):
            one.log.error("%s", cause, extra=fields(alert=cause))
        assert not await one.service.run_once()
        await until(lambda: len(box.got) >= 1)
    assert [message.get_content().splitlines()[0] for _, message in box.got] == ["twice"]
    kept = {group.cause: (group.count, group.pending) for group in one.buffer.take()}
    assert kept == {"app-twice": (2, 0), "app-once": (1, 1)}


async def test_second_error_of_a_group_is_mailed_while_the_first_one_cools_down(
    tmp_path: Path,
) -> None:
    config = AlertConfig(to=OPS, cooldown_s=900.0)
    async with opened(tmp_path) as store, smtp_server(Mailbox()) as box:
        one = process(store, tmp_path, config, mail_of(box))
        for count, error in ((1, "KeyError"), (1, "KeyError"), (2, "ValueError")):
            text = f"orders: attempt 1 of 1 at event {count} failed with {error} at orders.py:7"
            one.log.error("%s", text, extra=fields(events.MESSAGE_DEAD))
            await until(lambda count=count: len(box.got) == count)  # type: ignore[misc]
    assert ["KeyError" in mail["Subject"] for _, mail in box.got] == [True, False]


async def test_many_kinds_at_once_are_few_mails_so_that_an_outage_is_mailed_as_well(
    tmp_path: Path,
) -> None:
    config = AlertConfig(to=OPS, max_per_hour=3)
    async with opened(tmp_path) as store, smtp_server(Mailbox()) as box:
        one = process(store, tmp_path, config, mail_of(box))
        for name in string.ascii_lowercase:
            extra = fields(events.GROUP_ABSENT)
            one.log.error("no process has had the consumer group %s", name, extra=extra)
        await until(lambda: "group z" in "".join(mail.get_content() for _, mail in box.got))
        one.log.error("the store takes no writes", extra=fields(events.STORE_FAILED))
        await until(lambda: "takes no writes" in box.got[-1][1].get_content())
    lines = "".join(mail.get_content() for _, mail in box.got).splitlines()
    named = {line[-1] for line in lines if line.startswith("no process has had")}
    assert named == {*string.ascii_lowercase}


async def test_urgent_alert_is_kept_when_the_process_ends_before_its_mail_is_sent(
    tmp_path: Path,
) -> None:
    async with smtp_server(Mailbox(frozen={"DATA"})) as box:
        paths = PathsConfig(state=tmp_path, runtime=tmp_path)
        config = Config(alert=AlertConfig(to=OPS), mail=mail_of(box), paths=paths)
        with alerting(config, "worker@0"):
            extra = fields(events.MESSAGE_DEAD)
            logger("cordata.test").error("it is a dead letter", extra=extra)
            await box.waits.wait()
        with Spool([tmp_path]).taken() as kept:
            [group] = kept
    assert (group.title, group.count, group.pending) == ("it is a dead letter", 1, 1)


async def test_urgent_alert_is_kept_until_it_may_be_mailed_again_when_the_mail_server_is_away(
    state: Path,
) -> None:
    """The store is away, too: what is only counted then would never be mailed."""
    paths = PathsConfig(state=state, runtime=state)
    mail = MailConfig(host="127.0.0.1", port=9, timeout_s=30.0)  # nobody listens
    config = Config(alert=AlertConfig(to=OPS), mail=mail, paths=paths)
    async with opened(state) as store:
        pass
    with alerting(config, "worker") as alerts:
        carry = AlertService(store, alerts.buffer, alerts.alerter)
        now_us = clock.now_us()
        alerts.alerter.mail_soon(
            group_of("store", "the store is away", place="host", now_us=now_us, urgent=True)
        )
        await until(lambda: _pending(alerts.buffer))
        for _ in range(2):
            assert not await carry.run_once()
        [kept] = alerts.buffer.take()
        assert (kept.pending, kept.urgent) == (1, True)
        due_at = alerts.alerter.pace.due_at(kept)
        assert due_at > now_us + RETRY_S * 1e6
        assert (
            Cooldown([state], cooldown_s=900).claim(kept.fingerprint, now=due_at / 1e6) is not None
        )


async def test_alert_stays_one_when_neither_the_store_nor_the_mail_server_takes_it(
    tmp_path: Path,
) -> None:
    paths = PathsConfig(state=tmp_path, runtime=tmp_path)
    mail = MailConfig(host="127.0.0.1", port=9, timeout_s=30.0)  # nobody listens
    config = Config(alert=AlertConfig(to=OPS, count=1), mail=mail, paths=paths)
    async with opened(tmp_path) as store:
        pass
    with alerting(config, "worker") as alerts:
        carry = AlertService(store, alerts.buffer, alerts.alerter)
        logger("hub").error("once")
        assert not await carry.run_once()
        await until(lambda: _pending(alerts.buffer))
        [kept] = alerts.buffer.take()
    assert (kept.count, kept.pending, kept.urgent) == (1, 1, False)


def _pending(buffer: Buffer) -> bool:
    groups = buffer.take()
    buffer.add(groups)
    return any(group.pending for group in groups)


async def _mails(store: object, count: int) -> bool:
    return await mail_count(store) >= count  # type: ignore[arg-type]


async def test_alerts_are_kept_when_the_end_of_the_role_cancels_their_write(
    tmp_path: Path,
) -> None:
    """The store hangs, which may be what they are about."""
    begun = asyncio.Event()

    class Hanging:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def run(self, unit: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

    async with opened(tmp_path) as store:
        one = process(cast(Store, Hanging()), tmp_path, AlertConfig(to=OPS), NOBODY)
        one.log.error("once")
        writing = asyncio.create_task(one.service.run_once())
        await begun.wait()
        writing.cancel()
        await asyncio.wait([writing])
    assert [group.title for group in one.buffer.take()] == ["once"]
