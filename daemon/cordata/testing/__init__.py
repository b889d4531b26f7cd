"""Runs an application inside a test: with its real store and handlers, and the test's clock.

    from datetime import UTC, datetime

    from cordata.testing import async_test, open_app
    from shop.app import app


    @async_test
    async def test_order_is_confirmed_by_mail():
        async with open_app(app, now=datetime(2026, 7, 1, 8, tzinfo=UTC)) as shop:
            answer = await shop.request("POST", "/orders", json={"item": "boots"})
            assert answer.status == 201
            await shop.drain()
            [mail] = await shop.mails()
            assert mail.subject == "Your order"

Only the clock is replaced, and pool commands run in the test's process: the application's
migrations and SQL run on a real store (SQLite in a temporary directory by default), and events pass
through the same tables and code as in a worker. Nothing sleeps: a retry or a scheduled event is due
when the test advances the clock. No worker imports this package.
"""

from cordata.testing.asgi import Response
from cordata.testing.failure import Failure
from cordata.testing.harness import Harness, async_test, open_app
from cordata.testing.race import race
from cordata.testing.record import DeadLetter, Mail, OutboxEntry

__all__ = [
    "DeadLetter",
    "Failure",
    "Harness",
    "Mail",
    "OutboxEntry",
    "Response",
    "async_test",
    "open_app",
    "race",
]
