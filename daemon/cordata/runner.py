"""Runs one role: layers of services, signals, readiness, watchdog, ordered and bounded shutdown.

    starting --all ready--> ready --TERM, INT, or a service ended--> stopping --> ended
                 |                                                     ^
                 +--------------------- the same ----------------------+

Layers are listed in the order in which they stop (intake first, stores last) and start the other
way round, each when the one below it is ready.
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

from cordata import clock, events
from cordata.errors import ConfigError, CordataError
from cordata.heartbeat import Heartbeat as Heartbeat
from cordata.log import fields, logger, with_hint
from cordata.systemd import Notifier, watchdog_usec

log = logger("cordata.runner")

EXIT_OK, EXIT_FAILED = 0, 1
#: Objects that are made before the garbage collector runs.
_COLLECT_AFTER = 10_000
_TICK_S = 2.0
#: After the deadline cancelled everything, cleanup code gets this long.
_CANCEL_GRACE_S = 2.0
#: Option and value of mallopt(3). Large bodies are read by 64 KiB at most.
_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES = -3, 32_768


class Service(Protocol):
    """A long coroutine of a role.

    Optional attributes: `ready: asyncio.Event` (up; absent: up when started), `heartbeat`
    (checked before the watchdog is fed), `status() -> str` (a part of STATUS=, "" for none),
    `finite: bool` (returning early is its job, as in test mode).
    """

    @property
    def name(self) -> str:
        """Short and unique within the role, for the log."""
        ...

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set and what was begun is finished."""
        ...


@dataclass(slots=True)
class Layer:
    """Services that stop together; the next layer stops when all of these have ended."""

    name: str
    services: Sequence[Service]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    #: Names of services that still run.
    running: set[str] = field(default_factory=set)


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
    ) -> None:
        """`reload` is called at SIGHUP and returns a short text for STATUS= ("" for none). `state`
        begins STATUS= while the role runs.
        """
        self.layers = layers
        self.role = role
        self.notifier = notifier or Notifier()
        self._stop_timeout_s = stop_timeout_s
        self._reload = reload
        self._state = state
        self._unusable: ConfigError | None = None
        self._stopping = asyncio.Event()
        self._reload_wanted = asyncio.Event()
        self._exit_code = EXIT_OK
        self._note = ""
        self._ready = False

    def stop(self) -> None:
        """Begin the ordered shutdown; a second call changes nothing."""
        self._stopping.set()

    async def run(self) -> int:
        """Run until stopped. Returns the exit code: 0, or 1 when a service failed or hung.

        Raises: ConfigError, in which a service failed; the manager is not told that the role stops,
        for it may go on otherwise.
        """
        tasks: set[asyncio.Task[None]] = set()
        with self._signals():
            async with asyncio.TaskGroup() as group:
                side = [
                    group.create_task(self._guard("watchdog", self._keep_alive())),
                    group.create_task(self._guard("reload", self._reload_when_asked())),
                ]
                await self._start(group, tasks)
                await self._stopping.wait()
                await self._stop_in_order(tasks)
                for task in side:
                    task.cancel()
        if self._unusable is not None:
            raise self._unusable
        return self._exit_code

    async def _start(self, group: asyncio.TaskGroup, tasks: set[asyncio.Task[None]]) -> None:
        for layer in reversed(self.layers):
            if self._stopping.is_set():
                layer.finished.set()
                continue
            layer.running.update(service.name for service in layer.services)
            tasks.add(group.create_task(self._run_layer(layer)))
            await self._wait_ready(layer)
        if not self._stopping.is_set():
            self._ready = True
            log.info(
                "%s is %s",
                self.role,
                self._state,
                extra=fields(events.WORKER_READY, role=self.role),
            )
            self.notifier.ready(self.status_text())
            freeze_gc()

    async def _wait_ready(self, layer: Layer) -> None:
        """Until every service of the layer is up, or the role stops."""
        for service in layer.services:
            ready: asyncio.Event | None = getattr(service, "ready", None)
            if ready is not None:
                await _first_of(ready, self._stopping)

    async def _run_layer(self, layer: Layer) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for service in layer.services:
                    group.create_task(self._run_service(layer, service), name=service.name)
        finally:
            layer.finished.set()

    async def _run_service(self, layer: Layer, service: Service) -> None:
        """One service; its failure stops the role in order instead of cancelling its siblings."""
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
                self._finish_finite()
            elif not layer.stop.is_set():
                log.error("service %s ended before its stop", service.name, extra=extra)
                self._fail()
        finally:
            layer.running.discard(service.name)

    def _fail(self) -> None:
        self._exit_code = EXIT_FAILED
        self._stopping.set()

    def _finish_finite(self) -> None:
        """The role is done when the last of the services that end by themselves has ended."""
        left = [
            service
            for layer in self.layers
            for service in layer.services
            if getattr(service, "finite", False) and service.name in layer.running
        ]
        if len(left) <= 1:
            self._stopping.set()

    async def _stop_in_order(self, tasks: set[asyncio.Task[None]]) -> None:
        self._ready = False
        extra = fields(events.WORKER_STOPPING, role=self.role)
        log.info("%s is stopping", self.role, extra=extra)
        if self._unusable is None:
            self.notifier.stopping("stopping")
        try:
            async with asyncio.timeout(self._stop_timeout_s):
                for layer in self.layers:  # intake first, stores last
                    layer.stop.set()
                    await layer.finished.wait()
                    log.debug("layer %s stopped", layer.name)
        except TimeoutError:
            hung = sorted(name for layer in self.layers for name in layer.running)
            log.error(
                "not stopped after %g s: %s",
                self._stop_timeout_s,
                ", ".join(hung),
                extra=fields(events.SERVICE_FAILED, service=",".join(hung), role=self.role),
            )
            self._exit_code = EXIT_FAILED
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_CANCEL_GRACE_S)

    async def _guard(self, name: str, side: Coroutine[Any, Any, None]) -> None:
        """The runner's own loops: their failure stops the role in order, as a service's does."""
        try:
            await side
        except Exception as error:
            log.error("%s failed: %s", name, type(error).__name__, exc_info=error)
            self._fail()

    async def _keep_alive(self) -> None:
        """Feed the watchdog from the loop, refresh STATUS= when it changed; one timer for both."""
        half_s = watchdog_usec() / 2e6
        period_s = min(_TICK_S, half_s) if half_s else _TICK_S
        fed_at = clock.monotonic()
        if half_s:  # at once: for the manager, a process that started anew is the one before it
            self.notifier.watchdog()
        while True:
            await asyncio.sleep(period_s)
            now = clock.monotonic()
            if half_s and now - fed_at >= half_s - period_s / 2:
                if not self._stale(now):
                    self.notifier.watchdog()
                    fed_at = now
            if self._ready:
                self.notifier.status(self.status_text())

    def _stale(self, now: float) -> list[str]:
        """Services whose heartbeat is too old; logged once per tick until the watchdog acts."""
        stale = [
            service.name
            for layer in self.layers
            for service in layer.services
            if service.name in layer.running and not _fresh(service, now)
        ]
        if stale:
            log.error(
                "heartbeat of %s is stale; the watchdog is not notified",
                ", ".join(stale),
                extra=fields(events.SERVICE_FAILED, service=",".join(stale), role=self.role),
            )
        return stale

    def status_text(self) -> str:
        """`ready; 12 req/s; 3 in flight`: what each service has to say, in layer order."""
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
    """For the log: the text of a CordataError, else only the type; its text may quote anything."""
    if not isinstance(error, CordataError):
        return type(error).__name__, error
    return with_hint(error), None


def _fresh(service: Service, now: float) -> bool:
    heartbeat: Heartbeat | None = getattr(service, "heartbeat", None)
    return heartbeat is None or heartbeat.fresh(now)


async def _first_of(*wanted: asyncio.Event) -> None:
    """Until one of the events is set."""
    async with asyncio.TaskGroup() as group:
        waiters = [group.create_task(event.wait()) for event in wanted]
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiters:
            waiter.cancel()


def freeze_gc() -> None:
    """Exempt all objects that exist now from garbage collection, and make it run less often.

    What was imported and opened so far stays for good. And a collection for every 700 new
    containers took 5 to 10 % of a worker's time: a request makes hundreds, nearly all of which are
    freed without it. It runs after _COLLECT_AFTER now.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 50)
    _return_large_blocks()


def _return_large_blocks() -> None:
    """Have every large block given back to the system when it is freed.

    By default glibc takes blocks as large as the largest one freed so far, up to 32 MB, from the
    heap, where a small one above keeps them: after some large bodies a worker stayed at two to four
    times its size. A threshold that is set stays where it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # not every C library has it
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
