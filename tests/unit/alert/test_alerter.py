"""What a mail says, and which log events become one."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from cordata import clock, events
from cordata.alert import Alerter, AlertHandler, Buffer, Cooldown
from cordata.config.sections import AlertConfig, MailConfig
from cordata.context import Context
from cordata.core.alert import AlertGroup, group_of
from cordata.log import fields
from cordata.store import Store, new_id
from cordata.vault import Vault


class Heard(Alerter):
    """Keeps what would be mailed."""

    def __init__(self, to: tuple[str, ...] = ("ops@example.org",)) -> None:
        self.kept: list[AlertGroup] = []
        super().__init__(
            AlertConfig(to=to),
            MailConfig(host="mx"),
            login=None,
            directories=[Path("/nowhere")],
            postpone=self.kept.append,
        )
        self.heard: list[tuple[str, str, int]] = []
        self.told = threading.Event()

    def mail(self, groups: list[AlertGroup]) -> bool:
        self.heard += [(group.cause, group.sample, group.pending) for group in groups]
        self.told.set()
        return True


def logger_with(alerter: Alerter, buffer: Buffer) -> logging.Logger:
    log = logging.Logger("test")
    log.addHandler(AlertHandler(alerter, buffer, place="host worker@0"))
    return log


def test_handler_mails_the_urgent_at_once_and_counts_every_error() -> None:
    alerter, buffer = Heard(), Buffer()
    log = logger_with(alerter, buffer)
    log.error("a request failed", extra=fields(events.REQUEST_FAILED))
    log.error("no id")
    log.warning("not grave", extra=fields(events.STORE_FAILED))
    log.error("the disk is %s", "full", extra=fields(events.DISK_FULL))
    assert alerter.told.wait(10)
    assert alerter.heard == [("store-full", "the disk is full", 1)]
    pending = {group.title: group.pending for group in buffer.take()}
    assert pending == {"a request failed": 1, "no id": 1, "the disk is full": 0}


def test_handler_counts_what_the_application_raises_under_a_cause_of_its_own() -> None:
    buffer = Buffer()
    ctx = Context(store=cast(Store, None), vault=Vault(None), log=logger_with(Heard(), buffer))
    for hotel in ("EDELW", "HIRSCH"):
        ctx.alert("store-full", f"hotel {hotel} is full 100%")
    (group,) = buffer.take()
    assert (group.cause, group.title) == ("app-store-full", "hotel HIRSCH is full 100%")
    assert (group.count, group.pending, group.urgent) == (2, 2, False)


def test_handler_keeps_exceptions_apart_by_their_places_and_never_by_their_messages() -> None:
    buffer = Buffer()
    log = logger_with(Heard(), buffer)
    for number in range(3):
        log.error("handler of guest %s failed", f"Anna {number}")
        for fail in (_one, _other):
            try:
                fail(number)
            except ValueError:
                log.error("guest %s", f"Anna {number}", exc_info=True)
    groups = buffer.take()
    assert sorted(group.count for group in groups) == [3, 3, 3]
    assert {group.cause for group in groups} == {
        "test error",
        "test ValueError at tests.unit.alert.test_alerter:_one",
        "test ValueError at tests.unit.alert.test_alerter:_other",
    }
    # What an exception says is nobody's business; where it was raised is.
    assert not any("secret" in group.sample for group in groups)
    assert any("in _one" in group.sample for group in groups)


def test_handler_counts_each_error_of_a_group_by_itself_and_no_event_of_its_own() -> None:
    buffer = Buffer()
    log = logger_with(Heard(to=()), buffer)
    for number in range(1000):
        for error in (
            "KeyError at orders.py:7",
            "KeyError at orders.py:17",
            "ValueError at x.py:7",
        ):
            log.error(
                "orders: attempt %d of 12 at event %s failed with %s; it is a dead letter now",
                *(number % 12, new_id(number), error),
                extra=fields(events.MESSAGE_DEAD),
            )
        log.error("the store takes no writes: %s", number, extra=fields(events.STORE_FAILED))
    groups = buffer.take()
    assert [group.count for group in groups] == [1000, 1000, 1000, 1000]
    assert [group.cause for group in groups].count("dead-letter") == 3


def test_handler_tells_few_texts_apart_whatever_names_are_in_them() -> None:
    buffer = Buffer()
    log = logger_with(Heard(to=()), buffer)
    kinds: dict[str, int] = {}
    for number in range(2000):
        name = "".join("abcdefghij"[int(digit)] for digit in str(number))
        log.error("no room is left for %s", name)
        for group in buffer.take():  # stored meanwhile
            kinds[group.fingerprint] = kinds.get(group.fingerprint, 0) + group.count
    assert sorted(kinds.values()) == [1] * 100 + [1900]


def test_handler_counts_failed_requests_once_whatever_their_paths() -> None:
    buffer = Buffer()
    log = logger_with(Heard(to=()), buffer)
    for name in ("anna", "bert"):
        text = "GET /book/%s from 127.0.0.1 failed: 502"
        log.error(text, name, extra=fields(events.REQUEST_FAILED))
    assert [group.count for group in buffer.take()] == [2]


def test_handler_counts_an_outage_of_the_store_once_whatever_each_process_says_of_it() -> None:
    buffer = Buffer()
    log = logger_with(Heard(to=()), buffer)
    for text in ("connection refused", "the server has closed the connection"):
        log.error("the store takes no writes: %s", text, extra=fields(events.STORE_FAILED))
    assert [group.count for group in buffer.take()] == [2]


def test_handler_keeps_exceptions_that_were_never_raised_apart_by_their_text() -> None:
    buffer = Buffer()
    log = logger_with(Heard(), buffer)
    log.error("the first", exc_info=ValueError())
    log.error("the second", exc_info=ValueError())
    assert [(group.cause, group.count) for group in buffer.take()] == [
        ("test error", 1),
        ("test error", 1),
    ]


def _one(number: int) -> None:
    raise ValueError(f"secret of {number}")


def _other(number: int) -> None:
    raise ValueError(f"another secret of {number}")


def test_handler_does_not_tell_by_mail_that_a_mail_with_alerts_failed() -> None:
    alerter, buffer = Heard(), Buffer()
    extra = fields(events.MAIL_FAILED, message_id_header="<alert.0@host>")
    logger_with(alerter, buffer).error("mail 1 failed: refused", extra=extra)
    (group,) = buffer.take()
    assert (group.count, group.pending) == (1, 0)
    assert not alerter.told.is_set()


def test_handler_starts_no_mail_when_there_is_nobody_to_write_to() -> None:
    alerter, buffer = Heard(to=()), Buffer()
    logger_with(alerter, buffer).error("full", extra=fields(events.DISK_FULL))
    assert alerter.heard == []
    assert not alerter.told.is_set()
    assert [group.pending for group in buffer.take()] == [1]


def test_handler_survives_a_log_call_whose_arguments_do_not_fit() -> None:
    buffer = Buffer()
    logger_with(Heard(), buffer).error("%d", "one")
    assert buffer.take() == []


def test_handler_counts_an_error_that_is_logged_while_another_is_counted() -> None:
    """As when the garbage collector runs, which may free a task whose error nobody has seen."""
    buffer = Buffer()
    log = logger_with(Heard(), buffer)

    def groups() -> Iterator[AlertGroup]:
        log.error("inner")
        yield group("outer")

    adding = threading.Thread(target=buffer.add, args=(groups(),), daemon=True)
    adding.start()
    adding.join(10)
    assert not adding.is_alive()
    assert [one.count for one in buffer.take()] == [1, 1]


def test_mail_is_kept_when_no_thread_can_be_started() -> None:
    alerter = Heard()
    threading.stack_size(1 << 50)  # more than there is
    try:
        alerter.mail_soon(group("a"))
    finally:
        threading.stack_size(0)
    assert alerter.kept == [group("a")]
    alerter.mail_soon(group("b"))
    assert alerter.told.wait(10)
    assert alerter.heard == [("b", "b failed", 1)]


def unreachable(directory: Path, kept: list[AlertGroup], limit: int = 12) -> Alerter:
    return Alerter(
        AlertConfig(to=("ops@example.org",), max_per_hour=limit),
        MailConfig(host="mail..example.org"),
        login=None,
        directories=[directory],
        postpone=kept.append,
    )


def group(cause: str) -> AlertGroup:
    return group_of(cause, f"{cause} failed", place="host", now_us=1, urgent=True, key="kind")


def test_mail_is_kept_and_can_be_tried_again_when_the_host_is_no_name(tmp_path: Path) -> None:
    kept: list[AlertGroup] = []
    assert not unreachable(tmp_path, kept).mail([group("store-full")])
    stored = json.loads((tmp_path / "alerts.json").read_text())
    assert stored[group("store-full").fingerprint]["counted"] == 1
    assert kept == [group("store-full")]


def test_mail_is_kept_when_no_thread_can_be_started_to_look_up_the_host(tmp_path: Path) -> None:
    kept: list[AlertGroup] = []
    threading.stack_size(1 << 50)  # more than there is
    try:
        assert not unreachable(tmp_path, kept).mail([group("store-full")])
    finally:
        threading.stack_size(0)
    assert kept == [group("store-full")]


def test_mail_is_kept_when_the_host_sent_its_mails_of_this_hour(tmp_path: Path) -> None:
    kept: list[AlertGroup] = []
    alerter = unreachable(tmp_path, kept, limit=2)
    now = clock.now().timestamp()
    for ago, cause in enumerate(("a", "b")):
        Cooldown([tmp_path], cooldown_s=900).claim(cause, now=now - ago)
    assert alerter.mail([group("c")])
    assert kept == [group("c")]
