"""dramatiq on Redis: threads, acknowledged after the message."""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from tests.bench.peers.tally import Tally

dramatiq.set_broker(RedisBroker(url=os.environ["URL"]))
tally = Tally()


@dramatiq.actor
def noop(n: int, text: str) -> None:
    tally.add()


def load(count: int) -> None:
    for _ in range(count):
        noop.send(1, "x" * 400)
