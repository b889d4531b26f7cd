"""celery on Redis: prefork, acknowledged late."""

from __future__ import annotations

import os

from celery import Celery
from tests.bench.peers.tally import Tally

app = Celery("bench", broker=os.environ["URL"])
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=32,
    broker_connection_retry_on_startup=True,
)
tally = Tally()


@app.task(name="noop")
def noop(n: int, text: str) -> None:
    tally.add()


def load(count: int) -> None:
    with app.producer_or_acquire() as producer:
        for _ in range(count):
            noop.apply_async((1, "x" * 400), producer=producer)
