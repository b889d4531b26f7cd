"""Runs one role: layers of services, signals, readiness, watchdog, ordered shutdown by a deadline.

    starting --all ready--> ready --TERM, INT, or a service ended--> stopping --> ended
                 |                                                     ^
                 +--------------------- the same ----------------------+

Layers are listed in the order in which they stop: intake first, stores last. They start in the
opposite order, each when the layer below it is ready, or at once (`Layer.is_awaited`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cordata import clock, events, exit_codes
from cordata.errors import ConfigError, CordataError
from cordata.heartbeat import Heartbeat
from cordata.log import fields, logger, with_hint
from cordata.systemd import Notifier, watchdog_usec

log = logger("cordata.runner")

#: New container objects before the garbage collector runs.
_COLLECT_AFTER = 10_000
_TICK_S = 2.0
#: Option and value of mallopt(3). Large bodies are read in pieces of at most 64 KiB.
_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES = -3, 32_768


class Service(Protocol):
    """A long coroutine of a role.

    Optional attributes: `ready: asyncio.Event` (set when the service is up; without it, it is up
    when started), `heartbeat` (checked before the watchdog is notified), `status() -> str` (a part
    of STATUS=, "" for none), `finite: bool` (the role stops when the service has ended).
    """

    @property
    def name(self) -> str:
        """A short name for the log, unique within the role."""
        ...

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then finish the work in progress."""
        ...


@dataclass(slots=True)
class Layer:
    """Services that stop together; the next layer stops when all of these have ended."""

    name: str
    services: Sequence[Service]
    #: Whether the layer above starts only when this one is ready; READY=1 waits for it anyway.
    is_awaited: bool = True
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    #: Of the services that were started, in their order; a task has the name of its service.
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class Runner:
    """Runs the layers until a signal, the end of a service, or `stop()`."""

    def __init__(
        self,
        layers: Sequence[Layer],
        *,
        role: str,
        notifier: Notifier | None = None,
        stop_timeout_s: float = 30.0,
        reload: Callable[[], Coroutine[Any, Any, str]] | None = None,
        state: str = "ready",
        tick: Callable[[], None] | None = None,
    ) -> None:
        """`reload` is called at SIGHUP and returns a short text for STATUS= ("" for none). `state`
        is the first part of STATUS= while the role runs. `tick` is called every 2 s.
        """
        self.layers = layers
        self.role = role
        self.notifier = notifier or Notifier()
        self._stop_timeout_s = stop_timeout_s
        self._reload = reload
        self._state = state
        self._tick = tick
        self._unusable: ConfigError | None = None
        self._stopping = asyncio.Event()
        self._reload_wanted = asyncio.Event()
        self._exit_code = exit_codes.OK
        self._note = ""
        self._ready = False

    def stop(self) -> None:
        """Begin the ordered shutdown; a second call changes nothing."""
        self._stopping.set()

    async def run(self) -> int:
        """Run until stopped. Returns the exit code: 0, or 1 when a service failed or hung.

        Raises: ConfigError when a service raised it. Then no STOPPING=1 is sent, since the caller
        may continue in another way.
        """
        with self._signals():
            async with asyncio.TaskGroup() as group:
                side = [
                    group.create_task(self._guard("watchdog", self._keep_alive())),
                    group.create_task(self._guard("reload", self._reload_when_asked())),
                ]
                await self._start(group)
                await self._stopping.wait()
                await self._stop_in_order()
                for task in side:
                    task.cancel()
        if self._unusable is not None:
            raise self._unusable
        return self._exit_code

    async def _start(self, group: asyncio.TaskGroup) -> None:
        for layer in reversed(self.layers):
            if self._stopping.is_set():
                return
            for service in layer.services:
                work = self._run_service(layer, service)
                layer.tasks.append(group.create_task(work, name=service.name))
            if layer.is_awaited:
                await self._wait_ready(layer)
        for layer in self.layers:
            await self._wait_ready(layer)
        if not self._stopping.is_set():
            self._ready = True
            log.info(
                "%s is %s",
                self.role,
                self._state,
                extra=fields(events.ROLE_READY, role=self.role),
            )
            self.notifier.ready(self.status_text())
            freeze_gc()

    async def _wait_ready(self, layer: Layer) -> None:
        """Wait until every service of the layer is up, or the role stops."""
        for service in layer.services:
            ready: asyncio.Event | None = getattr(service, "ready", None)
            if ready is not None:
                await first_of(ready, self._stopping)

    async def _run_service(self, layer: Layer, service: Service) -> None:
        """Run one service. If it fails, the role stops in order; no other service is cancelled."""
        extra = fields(events.SERVICE_FAILED, service=service.name, role=self.role)
        try:
            await service.run(layer.stop)
        except ConfigError as error:  # reported by the caller of `run`
            self._unusable = error
            self._fail()
        except Exception as error:
            text, trace = _text_and_trace(error)
            log.error("service %s failed: %s", service.name, text, exc_info=trace, extra=extra)
            self._fail()
        else:
            if getattr(service, "finite", False):
                self._stopping.set()
            elif not layer.stop.is_set():
                log.error("service %s ended before its stop", service.name, extra=extra)
                self._fail()

    def _fail(self) -> None:
        self._exit_code = exit_codes.FAILED
        self._stopping.set()

    async def _stop_in_order(self) -> None:
        self._ready = False
        extra = fields(events.ROLE_STOPPING, role=self.role)
        log.info("%s is stopping", self.role, extra=extra)
        if self._unusable is None:
            self.notifier.stopping()
        try:
            async with asyncio.timeout(self._stop_timeout_s):
                for layer in self.layers:  # intake first, stores last
                    layer.stop.set()
                    if layer.tasks:
                        await asyncio.wait(layer.tasks)
                    log.debug("layer %s stopped", layer.name)
        except TimeoutError:
            tasks = [task for layer in self.layers for task in layer.tasks]
            hung = sorted(task.get_name() for task in tasks if not task.done())
            log.error(
                "not stopped after %g s: %s",
                self._stop_timeout_s,
                ", ".join(hung),
                extra=fields(events.SERVICE_FAILED, service=",".join(hung), role=self.role),
            )
            self._exit_code = exit_codes.FAILED
            # One that swallows its cancellation is killed with the process, by the service manager.
            for task in tasks:
                task.cancel()

    async def _guard(self, name: str, side: Coroutine[Any, Any, None]) -> None:
        """Run a loop of the runner. If it fails, the role stops in order, as for a service."""
        try:
            await side
        except Exception as error:
            log.error("%s failed: %s", name, type(error).__name__, exc_info=error)
            self._fail()

    async def _keep_alive(self) -> None:
        """Notify the watchdog, refresh STATUS= and tick, with one timer in the event loop."""
        half_s = watchdog_usec() / 2e6
        period_s = min(_TICK_S, half_s) if half_s else _TICK_S
        notified_at = clock.monotonic()
        if half_s:  # after reexec() the timer of the watchdog still runs
            self.notifier.watchdog()
        while True:
            await asyncio.sleep(period_s)
            now = clock.monotonic()
            if half_s and now - notified_at >= half_s - period_s / 2:
                if not self._stale(now):
                    self.notifier.watchdog()
                    notified_at = now
            if self._ready:
                self.notifier.status(self.status_text())
            if self._tick is not None:
                self._tick()

    def _stale(self, now: float) -> list[str]:
        """Names of services with a stale heartbeat; logs them, once per tick."""
        stale = [
            service.name
            for layer in self.layers
            for service, task in zip(layer.services, layer.tasks, strict=False)
            if not (task.done() or _fresh(service, now))
        ]
        if stale:
            log.error(
                "heartbeat of %s is stale; the watchdog is not notified",
                ", ".join(stale),
                extra=fields(events.SERVICE_FAILED, service=",".join(stale), role=self.role),
            )
        return stale

    def status_text(self) -> str:
        """`ready; 12 req/s; 3 in flight`: the status of each service, in the order of layers."""
        parts = [self._state, self._note]
        for layer in self.layers:
            for service in layer.services:
                status: Callable[[], str] | None = getattr(service, "status", None)
                parts.append(status() if status is not None else "")
        return "; ".join(part for part in parts if part)

    async def _reload_when_asked(self) -> None:
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            self.notifier.reloading()
            if self._reload is not None:
                self._note = await self._reload()
            if self._stopping.is_set():
                return
            if self._ready:
                self.notifier.ready(self.status_text())

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGTERM: self.stop,
            signal.SIGINT: self.stop,
            signal.SIGHUP: self._reload_wanted.set,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)


def _text_and_trace(error: Exception) -> tuple[str, Exception | None]:
    """For the log: the text of a CordataError; else only the type, as a text may quote data."""
    if not isinstance(error, CordataError):
        return type(error).__name__, error
    return with_hint(error), None


def _fresh(service: Service, now: float) -> bool:
    heartbeat: Heartbeat | None = getattr(service, "heartbeat", None)
    return heartbeat is None or heartbeat.fresh(now)


async def first_of(*awaited: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    async with asyncio.TaskGroup() as group:
        waiters = [group.create_task(event.wait()) for event in awaited]
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiters:
            waiter.cancel()


def freeze_gc() -> None:
    """Exempt all objects that exist now from garbage collection, and make it run less often.

    Modules and open resources stay for the life of the process. With Python's default, one
    collection per 700 new containers, it took 5 to 10 % of a worker's time: a request makes
    hundreds, and reference counting frees nearly all of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 50)
    _return_large_blocks()


def _return_large_blocks() -> None:
    """Make glibc return every large block to the system when it is freed.

    By default glibc raises its mmap threshold to the largest block freed so far, up to 32 MB, and
    takes smaller blocks from the heap, which cannot shrink while a block above is in use: after
    some large bodies a worker stayed at two to four times its size. Setting it stops that.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # not every C library has it
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
