"""huey on Redis: processes. It has no acknowledgement: a killed worker loses the task in hand."""

from __future__ import annotations

import os

from huey import RedisHuey
from tests.bench.peers.tally import Tally

huey = RedisHuey("bench", url=os.environ["URL"], results=False)
tally = Tally()


@huey.task()
def noop(n: int, text: str) -> None:
    tally.add()


def load(count: int) -> None:
    for _ in range(count):
        noop(1, "x" * 400)
