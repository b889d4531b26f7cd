"""The alerts of one process, and a primary that mails them, on a store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.engine.parts import rows
from tests.integration.mail.smtp_server import Mailbox
from tests.integration.primary.primary import build, running

from cordata.alert import Alerter, AlertHandler, Buffer, Spool
from cordata.app import App
from cordata.config.sections import AlertConfig, MailConfig
from cordata.services.alert import AlertService
from cordata.services.alert_mail import AlertMailService
from cordata.services.loop import background
from cordata.store import Row, Store

OPS = ("ops@example.org",)


@dataclass(slots=True)
class Process:
    """One process, with a logger whose errors are alerts."""

    log: logging.Logger
    buffer: Buffer
    service: AlertService


def process(
    store: Store, state: Path, config: AlertConfig, mail: MailConfig, *, sweeps: bool = False
) -> Process:
    """A process named `host worker@0`."""
    buffer = Buffer()
    alerter = Alerter(config, mail, login=None, directories=[state], postpone=lambda group: None)
    log = logging.Logger("hub")
    log.addHandler(AlertHandler(alerter, buffer, place="host worker@0"))
    spool = Spool([state]) if sweeps else None
    service = AlertService(store, buffer, alerter, spool=spool)
    return Process(log=log, buffer=buffer, service=service)


def mail_of(box: Mailbox) -> MailConfig:
    """The server of a box; tried again soon."""
    return MailConfig(
        host="127.0.0.1", port=box.port, retry_first_s=0.02, retry_max_s=0.2, timeout_s=30.0
    )


@asynccontextmanager
async def primary(
    store: Store, state: Path, config: AlertConfig, mail: MailConfig
) -> AsyncIterator[AlertMailService]:
    """A primary that leads; the mails about alerts are written by the test's own passes."""
    one = build(store, state, App("p"), mail=mail)
    service = AlertMailService(store, config)
    async with running(one):
        yield service


@asynccontextmanager
async def service(
    store: Store, state: Path, config: AlertConfig, mail: MailConfig, one: Process
) -> AsyncIterator[None]:
    """The whole of it: a process and a primary, as they run."""
    stop = asyncio.Event()
    leader = build(store, state, App("p"), mail=mail)
    mails = AlertMailService(store, config)
    async with running(leader), background(one.service.run(stop), mails.run(stop)):
        yield
        stop.set()


async def stored(store: Store) -> Mapping[str, Row]:
    """The alerts of the store, by title."""
    return {row["title"]: row for row in await rows_of(store)}


async def rows_of(store: Store) -> list[Row]:
    """The alerts of the store, the latest first."""
    return await store.read(lambda tx: tx.fetch_all("alert.list", limit=100))


async def mail_count(store: Store) -> int:
    """How many mails there are, sent or not."""
    return len(await rows(store, "mails"))
