"""What a mail says, and which log events become one."""

from __future__ import annotations

import json
import logging
import threading
from email.message import EmailMessage
from pathlib import Path
from typing import cast

from cordata import events
from cordata.alert import Alerter, AlertHandler
from cordata.alert.alerter import compose
from cordata.config.sections import AlertConfig, MailConfig
from cordata.context import Context
from cordata.log import fields
from cordata.store import Store
from cordata.vault import Vault


class Heard(Alerter):
    """Keeps what would be mailed."""

    def __init__(self, to: tuple[str, ...] = ("ops@example.org",)) -> None:
        super().__init__(
            AlertConfig(to=to), MailConfig(host="mx"), login=None, directories=[Path("/nowhere")]
        )
        self.heard: list[tuple[str, str, int]] = []
        self.told = threading.Event()

    def mail(self, cause: str, text: str, *, count: int = 1) -> bool:
        self.heard.append((cause, text, count))
        self.told.set()
        return True


def logger_with(alerter: Alerter) -> logging.Logger:
    log = logging.Logger("test")
    log.addHandler(AlertHandler(alerter))
    return log


def test_handler_mails_errors_of_the_watched_events_only() -> None:
    alerter = Heard()
    log = logger_with(alerter)
    log.error("nothing", extra=fields(events.REQUEST_FAILED))
    log.error("no id")
    log.warning("not grave", extra=fields(events.STORE_FAILED))
    log.error("the disk is %s", "full", extra=fields(events.DISK_FULL))
    assert alerter.told.wait(10)
    assert alerter.heard == [("store-full", "the disk is full", 1)]


def test_handler_mails_what_the_application_raises_under_a_cause_of_its_own() -> None:
    alerter = Heard()
    ctx = Context(store=cast(Store, None), vault=Vault(None), log=logger_with(alerter))
    ctx.alert("store-full", "a hotel is full 100%")
    assert alerter.told.wait(10)
    assert alerter.heard == [("app-store-full", "a hotel is full 100%", 1)]


def test_handler_starts_nothing_when_there_is_nobody_to_write_to() -> None:
    alerter = Heard(to=())
    logger_with(alerter).error("full", extra=fields(events.DISK_FULL))
    assert alerter.heard == []
    assert not alerter.told.is_set()


def test_compose_keeps_header_lines_single_when_the_text_has_line_breaks() -> None:
    message = compose(
        "x", "one\r\nBcc: evil@example.org", 3, AlertConfig(to=("a@b",)), MailConfig(), "host"
    )
    assert isinstance(message, EmailMessage)
    assert message["Subject"] == "[host] one"
    assert message["Bcc"] is None
    assert "It happened 3 times more" in message.get_content()


def test_compose_keeps_what_is_not_unicode_readable() -> None:
    message = compose("x", "group \udc80", 0, AlertConfig(to=("a@b",)), MailConfig(), "host")
    assert isinstance(message, EmailMessage)
    assert message.get_content().startswith("group \\udc80\n")
    assert b"group \\udc80" in message.as_bytes()


def test_mail_can_be_tried_again_when_the_host_is_no_name(tmp_path: Path) -> None:
    config, mail = AlertConfig(to=("ops@example.org",)), MailConfig(host="mail..example.org")
    alerter = Alerter(config, mail, login=None, directories=[tmp_path])
    assert not alerter.mail("store-full", "the disk is full")
    stored = json.loads((tmp_path / "alerts.json").read_text())
    assert stored["store-full"]["counted"] == 1
