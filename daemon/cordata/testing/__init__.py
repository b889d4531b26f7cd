"""Runs an application inside a test: its real store and handlers, and a time that the test moves.

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

Nothing is imitated but the clock: the application's migrations and SQL run on an embedded store in
a directory of the test's own, an event passes through its tables and the code that handles it in
a worker. Nothing sleeps: what waits for its time (a retry, a scheduled event) waits
until the test moves it. What `ctx.pool` runs, it runs in the test's process. No worker imports
this package.
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
