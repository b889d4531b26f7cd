"""The worker's children in the pool: only READY waits for them, for a limited time.

Their layer stops after the intake, since requests that still run may call the pool, and with one
worker these children are the whole pool.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import fields
from itertools import count

from msgspec.structs import replace

from cordata import clock
from cordata.config.pool import PoolConfig
from cordata.heartbeat import Heartbeat
from cordata.log import LogThrottle, logger
from cordata.pool.shared.paths import Place
from cordata.pool.shared.sessions import SessionStore
from cordata.pool.shared.spec import ChildSpec, SessionLimits
from cordata.pool.worker.child_supervisor import ChildSupervisor
from cordata.pool.worker.control import ControlServer
from cordata.services.loop import background, pause

log = logger("cordata.pool")

#: Between attempts to create the control socket.
_LISTEN_AGAIN_S = 1.0


class PoolChildService:
    """Keeps the children. READY waits for them, but not for long: calls wait in the clients."""

    name = "pool_children"

    def __init__(self, spec: ChildSpec, config: PoolConfig, store: SessionStore) -> None:
        """`spec`: of the first child; the others get the places after it."""
        self.heartbeat = Heartbeat()
        self._config = config
        self._store = store
        places = [Place(spec.place.worker, number) for number in range(config.children)]
        # From a clock, so that no generation is used twice, also after the worker was killed.
        generations = count(int(clock.monotonic() * 1000))
        self._supervisors = [
            ChildSupervisor(replace(spec, place=place), config, generations) for place in places
        ]
        #: Set when the first children are warm, or after `child_start_timeout_s`.
        self.ready = asyncio.Event()

    @property
    def up(self) -> int:
        """Children that take calls."""
        return sum(supervisor.up for supervisor in self._supervisors)

    @property
    def count(self) -> int:
        """Children that it keeps."""
        return len(self._supervisors)

    def status(self) -> str:
        """For STATUS=: how many children are ready; "" if all are."""
        up = self.up
        if up == len(self._supervisors):
            return ""
        if len(self._supervisors) == 1:
            return "pool child starting"
        return f"{up} of {len(self._supervisors)} pool children ready"

    def reload(self, config: PoolConfig, *, log_level: str) -> None:
        """Other limits for the children that run; the next ones log at this level, and have the
        limits of sessions and streams.
        """
        self._config = config
        self._store.limits = limits_of(config)
        for supervisor in self._supervisors:
            supervisor.reload(
                config,
                unread_timeout_s=config.unread_timeout_s,
                log_level=log_level,
                session_limits=self._store.limits,
            )

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`, and until the children have ended their calls.

        Raises: CordataError when another process is this worker.
        """
        control = ControlServer(self._supervisors, self._store)
        with contextlib.ExitStack() as stack:
            throttle = LogThrottle()
            while not stop.is_set():
                self.heartbeat.touch()
                try:
                    stack.enter_context(control.listening())
                    break
                except OSError as error:
                    if throttle.is_due(str(error)):
                        text = "this worker has no pool child: its sockets cannot be created: %s"
                        log.warning(text, error)
                self.ready.set()
                await pause(stop, _LISTEN_AGAIN_S)
            else:
                return
            stack.callback(self._store.close)
            async with (
                background(self._settle(), control.serve_sessions(), control.sweep()),
                asyncio.TaskGroup() as group,
            ):
                for supervisor in self._supervisors:
                    group.create_task(supervisor.run(tick=self.heartbeat.touch))
                await stop.wait()
                for supervisor in self._supervisors:
                    supervisor.stop()

    async def _settle(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.child_start_timeout_s):
                for supervisor in self._supervisors:
                    await supervisor.warmed.wait()
        if not all(supervisor.up for supervisor in self._supervisors):
            log.info("ready without a pool child, which is starting; calls wait in the pool")
        self.ready.set()


def limits_of(config: PoolConfig) -> SessionLimits:
    """The limits of sessions and globals."""
    return SessionLimits(
        **{field.name: getattr(config, field.name) for field in fields(SessionLimits)}
    )
