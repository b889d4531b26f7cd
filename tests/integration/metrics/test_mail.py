"""Attempts to send mail, counted by how they end."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.integration.engine.parts import opened, until
from tests.integration.engine.stores import state
from tests.integration.mail.smtp_server import Mailbox, smtp_server
from tests.integration.mail.test_mail import config_of, send

from cordata.metrics.file import read_all
from cordata.metrics.process import open_metrics
from cordata.metrics.series import MAILS
from cordata.services.mail import MailService

__all__ = ["state"]


async def test_attempts_to_send_mail_are_counted_by_outcome(state: Path) -> None:
    metrics = open_metrics(state / "metrics", "primary", MAILS.series())
    assert metrics is not None
    async with opened(state) as store, smtp_server(Mailbox(data=["451 later", "554 no"])) as box:
        service = MailService(store, config_of(box), metrics=metrics.outcomes(MAILS))
        await send(store, count=3)
        stop = asyncio.Event()

        async def are_sent() -> bool:
            await service.run_once(stop)
            return len(box.got) == 2

        await until(are_sent)
    (found,) = read_all(state / "metrics")
    *counts, times = (found.values[one] for one in MAILS.series())
    assert dict(zip(MAILS.outcomes, counts, strict=True)) == {
        "sent": (2.0,),
        "failed": (1.0,),
        "later": (1.0,),
    }
    assert sum(times[:-1]) == 4
