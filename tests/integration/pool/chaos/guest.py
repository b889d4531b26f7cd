"""Program: one client process, which carries orders out and writes down how each of them ended.

    python -m tests.integration.pool.chaos.guest SOCKET SEED NUMBER FILE [CALLERS]

What it is to do is drawn from its number, so one that was killed is judged by what it had left,
too. Of several callers in it every other one is sync. It needs nothing but cordata and uvloop.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.pool.chaos.callers import Caller, Progress, call_all
from tests.integration.pool.chaos.orders import Order, planned

from cordata import errors

#: Of each caller.
ORDERS = 60


def orders_of(seed: int, number: int, callers: int = 1) -> list[Order]:
    """Without a session: nobody would end the session of one that was killed."""
    rng = random.Random(seed * 10_007 + number)
    orders = planned(rng, callers * ORDERS, prefix=f"g{number}")
    for order in orders:
        order.with_session = False
        if order.kind in ("count", "note"):
            order.kind = "often"
    return orders


def read(file: Path) -> Iterator[Order]:
    """Those that ended, as they were written down."""
    if not file.exists():
        return
    with file.open("rb") as stream:
        while True:
            try:
                order, name, outcome = pickle.load(stream)
            except EOFError:
                return
            if name:
                kind = getattr(errors, name, RuntimeError)
                order.outcome = kind.__new__(kind, f"{name}: {outcome[0]}")
                if outcome[1] is not None:
                    order.outcome.ran = outcome[1]
            else:
                order.outcome = outcome
            yield order


class Book(Progress):
    """Writes down each order as it ends, in one write: what is there is whole."""

    def __init__(self, orders: list[Order], file: Path) -> None:
        super().__init__()
        self._left = list(orders)
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def end(self) -> None:
        with self.changed:
            for order in [order for order in self._left if order.took_s >= 0]:
                self._left.remove(order)
                os.write(self._fd, pickle.dumps((order, *_packed(order))))


def _packed(order: Order) -> tuple[str, Any]:
    """Its outcome, which may be an error that cannot be pickled; it is taken out of the order."""
    outcome, order.outcome = order.outcome, None
    if isinstance(outcome, BaseException):
        return type(outcome).__name__, (str(outcome), getattr(outcome, "ran", None))
    return "", outcome


def main(path: str, seed: str, number: str, file: str, callers: str = "1") -> None:
    """One process."""
    count = int(callers)
    orders = orders_of(int(seed), int(number), count)
    shares = [orders[n::count] for n in range(count)]
    guests = [Caller("", shares[n], sync=(int(number) + n) % 2 == 0) for n in range(count)]
    call_all(Path(path), guests, Book(orders, Path(file)))


if __name__ == "__main__":
    main(*sys.argv[1:])
