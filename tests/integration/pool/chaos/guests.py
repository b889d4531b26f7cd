"""Clients in processes of their own (guest.py), so that they can be killed and stopped as well."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.integration.cli.command import ROOT
from tests.integration.pool.chaos import guest
from tests.integration.pool.chaos.orders import Order
from tests.servers.reaper import watched

#: Kinds of kills, and how often; as those of a house.
KINDS: Mapping[str, int] = {"client": 5, "client that stood still": 4}
_PAUSE_S = (0.02, 1.5)
#: One that has just started has not begun; the machine may be busy.
_PATIENCE_S = 10.0


class Guests:
    """They come one after the other until the end; each is a process of the house."""

    #: At the same time, and callers in each.
    at_once, callers = 2, 1
    #: In all; 0: as many as come until `finish`.
    most = 0

    def __init__(self, path: Path, directory: Path, seed: int, environment: dict[str, str]) -> None:
        self._path, self.directory, self._seed = path, directory, seed
        self._environment = environment
        self._started = 0
        self._here: dict[int, subprocess.Popen[Any]] = {}
        #: Seconds for which each stood still.
        self.paused_s: dict[int, float] = defaultdict(float)
        self._timers: list[threading.Timer] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def kill(self, kind: str, rng: random.Random) -> bool:
        """One that has begun; False: none comes so far."""
        end = time.monotonic() + _PATIENCE_S
        while not self._kill(kind, rng):
            if self._over.is_set() or time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def _kill(self, kind: str, rng: random.Random) -> bool:
        with self._lock:
            living = [
                number
                for number, process in self._here.items()
                if process.poll() is None and self.file(number).exists()
            ]
            if not living:
                return False
            number = rng.choice(living)
            process = self._here[number]
            if kind == "client":
                self.send(process, signal.SIGKILL)
                return True
            pause_s = rng.uniform(*_PAUSE_S)
            self.paused_s[number] += pause_s
            self.send(process, signal.SIGSTOP)
            timer = threading.Timer(pause_s, self.send, [process, signal.SIGCONT])
            self._timers.append(timer)
            timer.start()
            return True

    @property
    def over(self) -> bool:
        """Whether all of them have come and gone."""
        with self._lock:
            here = any(process.poll() is None for process in self._here.values())
            return self._started == self.most and not here

    def finish(self) -> None:
        """No more of them; those that are here end what they have begun."""
        self._over.set()
        self._keeper.join()
        for timer in self._timers:
            timer.join()
        for process in self._here.values():
            process.wait(120.0)

    def ended(self) -> Iterator[tuple[int, list[Order]]]:
        """By number, all orders of each, with what became of them as far as it is known."""
        for number in range(self._started):
            found = {order.id: order for order in guest.read(self.file(number))}
            yield number, [found.get(o.id, o) for o in self._orders(number)]

    def send(self, process: subprocess.Popen[Any], number: signal.Signals) -> None:
        """A signal to one of them, unless it has ended."""
        process.send_signal(number)

    def words(self, number: int) -> list[str]:
        """What the program is told."""
        file = self.directory / f"guest-{number}"
        words = (self._path, self._seed, number, file, self.callers)
        return ["-m", guest.__name__, *map(str, words)]

    def _orders(self, number: int) -> list[Order]:
        return guest.orders_of(self._seed, number, self.callers)

    def _keep(self) -> None:
        while not self._over.wait(0.05):
            with self._lock:
                gone = [n for n, process in self._here.items() if process.poll() is not None]
                for number in gone:
                    del self._here[number]
                while len(self._here) < self.at_once and self._may_come():
                    self._here[self._started] = self.start(self._started)
                    self._started += 1

    def _may_come(self) -> bool:
        return not self.most or self._started < self.most

    def start(self, number: int) -> subprocess.Popen[Any]:
        """The next one."""
        return watched(
            subprocess.Popen(
                [sys.executable, *self.words(number)],
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}",
                    **self._environment,
                },
                stdin=subprocess.DEVNULL,
            )
        )

    def file(self, number: int) -> Path:
        """Where it writes down what it did."""
        return self.directory / f"guest-{number}"

    def __enter__(self) -> Guests:
        self._keeper.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._over.set()
        self._keeper.join()
        for process in self._here.values():
            process.kill()
            process.wait()
