"""The client side of the pool: every call of one process, from the queue to the answer.

```
 submit --> queue --the scheduler chooses a child--> sent --answer--> over
              ^                                       |
              |---- not begun: its child left, died, or computes too long (revoked) -------|
              '---- begun, its child died, and it is idempotent: with the remaining time --'
```
`_on_lost` and `_settle_after_death` decide about a call whose child died. A call that is over for
its caller still counts for its child until the child has answered, or is gone.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Future
from collections import OrderedDict
from collections.abc import Mapping
from math import inf
from pathlib import Path
from time import monotonic
from types import MappingProxyType

from cordata import clock, events, trace
from cordata.config.pool import DEFAULT_POOL, PoolConfig, pool_of_command, pool_of_worker
from cordata.errors import (
    CallCancelled,
    ChildCrashed,
    CommandUnknown,
    CordataError,
    DeadlineExceeded,
    FrameTooLarge,
    PoolClosed,
    PoolSaturated,
    PoolUnavailable,
    PreferredWorkerBusy,
    ProtocolError,
    QueueTimeout,
    is_transient,
)
from cordata.log import LogThrottle, fields, logger
from cordata.metrics.process import Outcomes
from cordata.pool.client.breaker import CircuitBreaker
from cordata.pool.client.call import Call
from cordata.pool.client.connection import Connection
from cordata.pool.client.control_client import ControlClient
from cordata.pool.client.deadlines import Deadlines
from cordata.pool.client.directory import Directory
from cordata.pool.client.scheduler import LONG_CALL_S, ChildState, Scheduler
from cordata.pool.client.values import FORKED, bounded, error_of, new_client_id
from cordata.pool.shared import protocol
from cordata.pool.shared.paths import ChildAddress, own_pool
from cordata.pool.shared.protocol import CommandOptions, call_id

log = logger("cordata.pool")

#: How long a worker may take to say how its child died, before the caller is answered.
_DEATH_REPORT_S = 1.5
#: Pause between two checks of busy children while calls wait for them: the first one, and the
#: longest, to which it grows. With 8 children a client takes 0.9 % of a core at the first, 0.3 % at
#: the longest, and hundreds may wait.
_CHECK_S, _CHECK_MAX_S = LONG_CALL_S, 0.05
#: Pause before the client connects again to a child that it could not reach or that hung up.
_CONNECT_AGAIN_S = 0.01
#: A free child has this long to begin a call whose queue timeout has passed meanwhile. Without it 6
#: of 100 calls with a queue timeout of 0 failed although the child was free.
_BEGIN_S = 1.0
#: A call that is being revoked is checked again after this long at most.
_REVOKE_S = 1.0
#: Seconds between two lines about refused calls.
_SATURATED_EVERY_S = 10.0
#: Sessions whose worker is remembered.
_SESSIONS = 4096
#: The death of a child whose worker does not answer.
_UNKNOWN = protocol.Death(0, known=False)


class Dispatcher:
    """All calls of one client, each with the child that has it. For one event loop, that of its
    first call.
    """

    def __init__(
        self,
        path: Path,
        pools: Mapping[str, PoolConfig],
        declared: Mapping[str, CommandOptions] = MappingProxyType({}),
        metrics: Mapping[str, Outcomes] = MappingProxyType({}),
    ) -> None:
        """`pools`: the configuration of each, "default" first; empty: pools are found by the files
        of their children. `declared`: options of the commands of this process's application.
        `metrics`: where calls are counted, by command.
        """
        self._path = path
        self._configured = dict(pools)
        self._loop: AbstractEventLoop | None = None
        self._directory: Directory | None = None
        self.control = ControlClient()
        self._client_id = new_client_id()
        self._pools: dict[str, Scheduler] = {}
        self._declared = declared
        self._metrics = metrics
        #: These, and those of each command that any child knows or knew (it may be restarting).
        self.options: Mapping[str, CommandOptions] = declared
        self._connections: dict[ChildState, Connection] = {}
        #: Children that are dead or refuse this client, until their files are gone.
        self._unusable: set[ChildAddress] = set()
        #: Nested calls that wait until a free child has answered the hello, or until the commands
        #: of other pools are known.
        self._nested: list[Call] = []
        #: Worker and affinity of sessions that this process called.
        self._sessions: OrderedDict[str, tuple[str, str]] = OrderedDict()
        first = self._configured.get(DEFAULT_POOL, PoolConfig())
        self._breaker = CircuitBreaker(first.poison_limit, first.poison_pause_s)
        self._deadlines: Deadlines[Call] = Deadlines(self._on_deadline)
        self._check_timer: asyncio.TimerHandle | None = None
        self._connect_timer: asyncio.TimerHandle | None = None
        self._last_sequence = 0
        #: Calls that were refused since the last line about it.
        self._saturated = 0
        self._saturation_throttle = LogThrottle(again_s=_SATURATED_EVERY_S)
        self.closed = False

    # --- what callers do ---

    @property
    def loop(self) -> AbstractEventLoop:
        """The event loop of the callers."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _export_at_end(self, exporter: trace.Exporter, call: Call) -> None:
        """Export the span of a call when it is over."""
        id_, begun_us = call_id(self._client_id, call.sequence), clock.now_us()

        def export(_: object) -> None:
            error = call.error()
            exporter.export(
                trace.trace_of(call.request_id, call.traceparent, (id_,)),
                call.command,
                kind="client",
                begun_us=begun_us,
                attributes={"cordata.call_id": id_, "cordata.request_id": call.request_id},
                error="" if error is None else type(error).__name__,
            )

        call.add_done_callback(export)

    def submit(self, call: Call) -> None:
        """Send the call, or let it wait. Raises: PoolClosed; PoolSaturated, if the queue is full.

        All other errors end the call, some of them at once: CommandPoisoned, CommandUnknown,
        PreferredWorkerBusy, FrameTooLarge, and PoolSaturated of a nested call.
        """
        if self.closed:
            raise PoolClosed("the client is closed")
        if self._directory is None:
            self.open()
        now = call.enqueued
        self._last_sequence += 1
        call.sequence = self._last_sequence
        if trace.exporter is not None and (call.request_id or call.traceparent):
            self._export_at_end(trace.exporter, call)
        call.pool = self._pool_of(call.command)
        pool = self._get_or_create_pool(call.pool)
        try:
            self._breaker.check(call.command, now)
            if call.command not in pool.commands:
                self._check_known(pool, call.command)
        except CordataError as error:
            self._fail(call, error)
            return
        if own := own_pool():
            call.nested = Path(own) == self._path / call.pool
        if not self._assign(pool, call, now):
            try:
                pool.queue.add(call)
            except PoolSaturated:
                self._count_failure(call)
                self._log_saturation(pool, now)
                raise
            if pool.queue.kinds > 1:  # a call ahead that no free child can run must not block it
                self._send_waiting(pool)
        if not call.done():
            self._deadlines.set(call, min(call.deadline, call.queue_deadline))
            self._check_children_soon()

    def cancel(self, call: Call, *, hard: bool) -> None:
        """Cancel for the caller: a waiting call never begins, a running one is asked to end.

        `hard`: its child is killed if the call does not end within `cancel_grace_s`.
        """
        self._deadlines.clear(call)
        connection = self._connection_with(call)
        if call.queued:
            self._pools[call.pool].queue.drop(call)
        elif call in self._nested:
            self._nested.remove(call)
        elif connection is not None and connection.child.calls.get(call.number) is call:
            if connection.last_begun < call.number:
                connection.revoke(call.number, self._on_revoked)
            connection.cancel(call)
            if hard:
                self._kill(connection, call)

    def credit(self, call: Call, count: int) -> None:
        """Let the child send `count` more parts of the stream."""
        connection = self._connection_with(call)
        if connection is not None:
            connection.credit(call, count)

    def remember(self, session: str, worker: str, affinity: str) -> None:
        """Store the preferred worker and the affinity of a session; worker "" removes them."""
        if not worker:
            self._sessions.pop(session, None)
            return
        self._sessions[session] = (worker, affinity)
        self._sessions.move_to_end(session)
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)

    def open(self) -> None:
        """Start to look for children; does nothing the second time."""
        if self._directory is None:
            loop = asyncio.get_running_loop()
            if self._loop is not None and self._loop is not loop:
                raise PoolClosed("the client belongs to another event loop")
            self._loop = loop
            self._directory = Directory(self._path, self._on_directory_change)
            self._on_directory_change()

    @property
    def workers(self) -> dict[tuple[str, str], Path]:
        """The control sockets of all workers, by pool and worker."""
        return {} if self._directory is None else self._directory.workers

    @property
    def problem(self) -> str:
        """Why no workers were found; "": unknown."""
        return "" if self._directory is None else self._directory.problem

    def close(self, *, forked: bool = False) -> None:
        """End every call with PoolClosed, and all connections; `forked`: these and the calls belong
        to the parent, where they go on.
        """
        if self.closed:
            return
        self.closed = True
        for call in self._deadlines.items():  # every unfinished call has a deadline here
            call.fail(PoolClosed(FORKED if forked else "the client was closed"))
        if not forked:
            self._deadlines.close()
            for timer in (self._check_timer, self._connect_timer):
                if timer is not None:
                    timer.cancel()
        if self._directory is not None:
            self._directory.close(forked=forked)
        for connection in list(self._connections.values()):
            connection.close(forked=forked)
        self.control.close(forked=forked)

    # --- which child ---

    def _pool_of(self, command: str) -> str:
        if self._configured:
            return pool_of_command(self._configured, command)
        for name, pool in self._pools.items():
            if command in pool.commands:
                return name
        return DEFAULT_POOL

    def _get_or_create_pool(self, name: str) -> Scheduler:
        pool = self._pools.get(name)
        if pool is None:
            config = self._configured.get(name) or PoolConfig()
            pool = self._pools[name] = Scheduler(name, config)
        return pool

    def _check_known(self, pool: Scheduler, command: str) -> None:
        """Raises: CommandUnknown when no child knows or knew the command, and all children of all
        workers have said what they know.
        """
        if command in pool.commands or command in self.options:
            return
        pools = [pool] if self._configured else list(self._pools.values())
        if not pools or not all(one.is_complete for one in pools):
            return
        import difflib  # 3 ms, and only for a mistake

        known = {name for one in pools for child in one.children for name in child.commands}
        near = difflib.get_close_matches(command, sorted(known), n=1)
        hint = f"did you mean {near[0]!r}?" if near else None
        raise CommandUnknown(f"no worker knows {command!r}", hint=hint)

    def _assign(self, pool: Scheduler, call: Call, now: float) -> bool:
        """Send the call to a child, fail it, or let it wait in `_nested`; False: the caller has to
        queue it.
        """
        prefer = ""
        if call.session:
            prefer, affinity = self._sessions.get(call.session, ("", ""))
            if not self._may_be_of(pool, prefer):
                prefer = ""  # a session has a worker in one pool
            call.pinned = prefer if affinity not in ("", "hint") else ""
            if (
                call.pinned
                and affinity == "strict_fail"
                and not pool.has_handshaking_child(call.pinned)
            ):
                child = pool.free_child(call)
                if child is None:
                    why = pool.unavailable_reason(call) or f"worker {call.pinned} is busy"
                    text = f"the worker of the session is not free: {why}"
                    self._fail(call, PreferredWorkerBusy(text))
                else:
                    self._send(call, child)
                return True
        if call.nested:
            self._assign_nested(pool, call)
            return True
        if pool.queue.count and not call.pinned:
            return False
        child = pool.choose(call, now, prefer=prefer)
        if child is None:
            return False
        self._send(call, child)
        return True

    def _may_be_of(self, pool: Scheduler, worker: str) -> bool:
        """Whether the worker may belong to this pool, as far as the client knows."""
        if self._configured:
            return pool_of_worker(self._configured, worker) == pool.name
        others = (other.workers for other in self._pools.values())
        return worker in pool.workers or not any(worker in workers for workers in others)

    def _assign_nested(self, pool: Scheduler, call: Call) -> None:
        """Send a nested call, let it wait for a child's hello, or fail it: it must not wait for a
        busy child, which may be its caller's.
        """
        child = pool.free_child(call)
        others = [one for one in self._pools.values() if one is not pool]
        unknown = call.command not in pool.commands
        if child is not None:
            self._send(call, child)
        elif pool.has_handshaking_child() or (unknown and any(one.has_unknown for one in others)):
            self._nested.append(call)
        else:
            text = (
                f"all processes of pool {call.pool} are busy, one of them with the command that"
                f" calls {call.command!r}: give that a pool of its own ([pool.NAME] commands)"
            )
            self._fail(call, PoolSaturated(text))

    def _send(self, call: Call, child: ChildState) -> None:
        try:
            self._connections[child].send_call(call)
        except FrameTooLarge as error:
            self._fail(call, error)

    def _connection_with(self, call: Call) -> Connection | None:
        """The connection to the child that has the call; None: no child has it, or it is gone."""
        return self._connections.get(call.child)

    def _send_waiting(self, pool: Scheduler) -> None:
        """Send all waiting calls for which a child is free."""
        if pool.queue.count:
            now = monotonic()
            while pool.queue.count and (pair := pool.next_pair(now)) is not None:
                child, call = pair
                self._send(call, child)
        if self._nested:
            waiting, self._nested = self._nested, []
            for call in waiting:
                if (name := self._pool_of(call.command)) != call.pool:
                    call.pool, call.nested = name, False
                self._requeue(call)

    def _requeue(self, call: Call) -> None:
        """Queue an unfinished call again at its former place, send it, or fail it."""
        now = monotonic()
        call.child, call.late_error = None, None
        pool = self._get_or_create_pool(call.pool)
        if now >= call.deadline:
            self._fail(call, self._late_error(call, now))
            return
        try:
            self._breaker.check(call.command, now)
            self._check_known(pool, call.command)
        except CordataError as error:
            self._fail(call, error)
            return
        # The others wait for their turn. A nested call must not wait behind its caller, and one of
        # a session may have to fail if its worker is busy.
        if (call.nested or call.session) and self._assign(pool, call, now):
            return
        pool.queue.add(call, back=True)
        self._send_waiting(pool)
        self._check_children_soon()

    def _log_saturation(self, pool: Scheduler, now: float) -> None:
        self._saturated += 1
        if not self._saturation_throttle.is_due("", now=now):
            return
        log.warning(
            "pool %s is full: %d calls wait in this process, %d were refused since the last report",
            pool.name,
            pool.queue.count,
            self._saturated,
            extra=fields(events.POOL_SATURATED, pool=pool.name, waiting=pool.queue.count),
        )
        self._saturated = 0

    def _fail(self, call: Call, error: Exception) -> None:
        self._deadlines.clear(call)
        if not call.done():
            self._count_failure(call)
        call.fail(error)

    def _count_failure(self, call: Call) -> None:
        """Count a call that fails without the answer of a child."""
        if (metrics := self._metrics.get(call.command)) is not None:
            metrics.count("error")

    # --- what children say ---

    def _on_messages(self, connection: Connection, messages: list[protocol.FromChild]) -> None:
        """Handle messages of a child."""
        child = connection.child
        pool = self._pools[connection.address.pool]
        for message in messages:
            if isinstance(message, protocol.Welcome):
                connection.welcome(message)
                self.options = {**self.options, **child.commands, **self._declared}
                pool.learn()
                self._set_declared_deadlines()
                self._on_welcome(connection)
                continue
            if isinstance(message, protocol.Chunk):
                call = child.calls.get(message.number)
                if call is not None and call.stream is not None and not call.done():
                    call.stream.add(message.value)
                continue
            call = child.calls.pop(message.number, None)
            if call is None:
                if isinstance(message, protocol.Failure) and message.number == 0:
                    self._on_refusal(connection, error_of(message))
                    return
                continue  # it was revoked
            if isinstance(message, protocol.NotRun):
                self._on_not_run(connection, call, message)
                continue
            self._deadlines.clear(call)
            if message.run_us:
                self._breaker.succeeded(call.command)
                pool.ran(child, call.command, message.run_us)
            metrics = self._metrics.get(call.command)
            if metrics is not None and not call.done():  # else it was counted, or cancelled
                run_s = message.run_us / 1e6
                outcome = "failed" if isinstance(message, protocol.Failure) else "done"
                wait_s = max(0.0, monotonic() - call.enqueued - run_s)
                metrics.count(outcome, wait_s, run_s)
            call.answer(message)
            if call.session and not isinstance(message, protocol.Failure):
                self.remember(call.session, message.session_worker, message.affinity)
        if pool.queue.count:
            now = monotonic()
            while (following := pool.next_call(child, now)) is not None:
                self._send(following, child)

    def _on_writable(self, connection: Connection) -> None:
        """The socket of a child takes calls again."""
        self._send_waiting(self._pools[connection.address.pool])

    def _on_lost(self, connection: Connection) -> None:
        """A connection ended. A call that its child had begun is settled when the worker has said
        how the child died; the others go to another child.
        """
        connection.close()
        last_begun = connection.last_begun  # now it is final
        self._connections.pop(connection.child, None)
        self._connect_later()  # the child may be alive and have ended only this connection
        pool = self._pools[connection.address.pool]
        pool.remove(connection.child)
        calls, connection.child.calls = connection.child.calls, {}
        for number, call in calls.items():
            if number <= last_begun:
                self._ask_death(connection, call)
            elif call.late_error is not None:
                self._fail(call, call.late_error)
            elif not call.done():
                self._requeue(call)
        self._recheck_commands(pool)

    def _on_welcome(self, connection: Connection) -> None:
        for pool in list(self._pools.values()):
            self._recheck_commands(pool)
        self._send_waiting(self._pools[connection.address.pool])

    def _set_declared_deadlines(self) -> None:
        """Replace the client's default deadline of waiting calls by that of their command."""
        waiting = [call for pool in self._pools.values() for call in pool.queue.calls()]
        for call in waiting + self._nested:
            options = self.options.get(call.command) if call.deadline_is_default else None
            if options is None:
                continue
            call.deadline_is_default = False
            if options.timeout_s is not None:
                call.deadline = call.enqueued + bounded(options.timeout_s)
                self._deadlines.set(call, min(call.deadline, call.queue_deadline))

    def _recheck_commands(self, pool: Scheduler) -> None:
        """Move waiting calls to a pool that knows their command by now; fail those of none."""
        for command in pool.queue.commands():
            if command in pool.commands:
                continue
            name = self._pool_of(command)
            calls = [call for call in pool.queue.calls() if call.command == command]
            if name != pool.name:
                for call in calls:
                    pool.queue.drop(call)
                    call.pool = name
                    self._requeue(call)
                continue
            try:
                self._check_known(pool, command)
            except CommandUnknown as error:
                for call in calls:
                    pool.queue.drop(call)
                    self._fail(call, CommandUnknown(str(error), hint=error.hint))

    def _on_refusal(self, connection: Connection, error: Exception) -> None:
        """The child refused this connection."""
        log.warning("child %s refuses this process: %s", connection.address.socket, error)
        pool = self._pools[connection.address.pool]
        if not connection.child.ready:  # it would refuse the next hello, too
            self._unusable.add(connection.address)
        self._on_lost(connection)
        if isinstance(error, ProtocolError) and not pool.children:
            for call in pool.queue.calls():
                pool.queue.drop(call)
                self._fail(call, error)

    def _on_not_run(self, connection: Connection, call: Call, packet: protocol.NotRun) -> None:
        if call.done():
            return
        if call.late_error is not None:
            self._fail(call, call.late_error)
        else:
            if packet.reason == "unknown_command":
                connection.child.commands.pop(call.command, None)
                self._pools[connection.address.pool].learn()
            elif packet.reason == "moved":
                self.remember(call.session, packet.worker, packet.affinity)
            self._requeue(call)

    # --- deadlines, and children that compute for long ---

    def _on_deadline(self, call: Call) -> None:
        """The deadline of the call, or of its time in the queue, has passed."""
        now = monotonic()
        connection = self._connection_with(call)
        if call.queued:
            self._pools[call.pool].queue.drop(call)
            self._fail(call, self._late_error(call, now))
        elif call in self._nested:
            self._nested.remove(call)
            self._fail(call, self._late_error(call, now))
        elif connection is None:  # the worker is being asked how the child died
            if now < call.deadline:  # it has begun, so its time in the queue does not count
                self._deadlines.set(call, call.deadline)
                return
            self._fail(call, DeadlineExceeded("the deadline passed as its child died", ran=True))
        elif call.number <= connection.last_begun:
            if now < call.deadline:
                self._deadlines.set(call, call.deadline)
                return
            connection.cancel(call)
            self._fail(call, DeadlineExceeded("the deadline passed while it ran", ran=True))
        elif now < (latest := min(call.deadline, call.queue_deadline + _BEGIN_S)) and (
            not connection.child.load.busy_since
        ):  # its queue timeout, but the child is free and about to begin it
            self._deadlines.set(call, min(latest, now + _CHECK_MAX_S))
        else:
            call.late_error = self._late_error(call, now)
            self._deadlines.set(call, now + _REVOKE_S)
            connection.revoke(call.number, self._on_revoked)

    def _on_revoked(self, connection: Connection, number: int) -> None:
        """Revoking the calls up to this number is complete: `last_begun` is final for them."""
        if connection.closed:
            return
        last_begun, calls = connection.last_begun, connection.child.calls
        back = []
        for each, call in list(calls.items()):
            if each > number:
                break
            if each > last_begun:
                del calls[each]
                back.append(call)
            elif call.late_error is not None and not call.done():
                call.late_error = None
                self._on_deadline(call)
        for call in back:
            if call.late_error is not None:
                self._fail(call, call.late_error)
            elif not call.done():
                self._requeue(call)
        self._send_waiting(self._pools[connection.address.pool])

    def _late_error(self, call: Call, now: float) -> CordataError:
        """The error of a call that did not begin in time."""
        pool = self._pools[call.pool]
        why = pool.unavailable_reason(call)
        more = f": {why}" if why else ""
        if now < call.deadline:
            return QueueTimeout(f"no child was free in time{more}")
        if not (call.deaths or pool.children or pool.workers):
            return PoolUnavailable(f"no worker took the call{more} ({self.problem or self._path})")
        again = ", before it ran again" if call.deaths else ""
        text = f"the deadline passed in the queue{again}{more}"
        return DeadlineExceeded(text, ran=call.deaths > 0)

    def _check_children_soon(self, pause_s: float = _CHECK_S) -> None:
        """Check the children again soon, while calls wait for them."""
        if self._check_timer is None and not self.closed:
            self._check_timer = self.loop.call_later(pause_s, self._check_children, pause_s)

    def _check_children(self, pause_s: float) -> None:
        """Revoke calls that wait behind a long one, send those that wait for a free child, and
        check again while any call waits. Polled: a status page gives no notice when a child ends a
        call of another client, or when its call becomes a long one.
        """
        self._check_timer = None
        now = monotonic()
        waiting = bool(self._nested)
        for pool in self._pools.values():
            for child, number in pool.misplaced(now):
                connection = self._connections[child]
                if connection.last_begun < number:
                    connection.revoke(number, self._on_revoked)
            self._send_waiting(pool)
            waiting = waiting or bool(pool.queue.count)
        waiting = waiting or any(one.has_unbegun_calls for one in self._connections.values())
        if waiting:
            self._check_children_soon(min(1.5 * pause_s, _CHECK_MAX_S))

    # --- children that died, and those to be killed ---

    def _ask_death(self, connection: Connection, call: Call) -> None:
        """Ask the worker how the child died in this call, then settle the call."""
        address = connection.address
        request = protocol.DeathRequest(number=0, generation=address.generation)
        try:
            asked = self.control.ask(address.control, request)
        except OSError:
            self._settle_after_death(connection, call, _UNKNOWN)
            return
        timer = self.loop.call_later(_DEATH_REPORT_S, asked.cancel)

        def answered(asked: Future[protocol.ToControlClient]) -> None:
            timer.cancel()
            lost = asked.cancelled() or asked.exception() is not None
            answer = None if lost else asked.result()
            death = answer if isinstance(answer, protocol.Death) else _UNKNOWN
            self._settle_after_death(connection, call, death)

        asked.add_done_callback(answered)

    def _settle_after_death(
        self, connection: Connection, call: Call, death: protocol.Death
    ) -> None:
        """Fail a call that had begun, or run it again."""
        now = monotonic()
        if death.known and not death.reason:  # it died by itself, not killed by its worker
            if self._breaker.count_death(call.command, now):
                log.error(
                    "command %s is refused for %g s: it killed %d children in a row",
                    call.command,
                    self._breaker.pause_s,
                    self._breaker.limit,
                    extra=fields(events.POOL_COMMAND_POISONED, command=call.command),
                )
        if call.done() or self.closed:
            return
        if death.reason == "deadline":
            self._fail(call, DeadlineExceeded("the deadline passed while it ran", ran=True))
        elif death.reason == "cancelled":
            self._fail(call, CallCancelled("its child was killed after a hard cancel"))
        elif self._may_run_again(connection, call, now):
            call.deaths += 1
            call.queue_deadline = inf  # it began in time
            self._deadlines.set(call, call.deadline)
            self._requeue(call)
        else:
            self._fail(call, _crash_error(connection, call, death))

    def _may_run_again(self, connection: Connection, call: Call, now: float) -> bool:
        # The options of the child that ran it: other children may have another version.
        said = connection.child.commands.get(call.command, CommandOptions())
        options = self._declared.get(call.command, said)
        retries = self._pools[call.pool].config.retries
        return call.may_run_again(options, retries) and not self._breaker.is_open(call.command, now)

    def _kill(self, connection: Connection, call: Call) -> None:
        request = protocol.KillRequest(
            number=0,
            generation=connection.address.generation,
            client=self._client_id,
            call=call.sequence,
        )
        try:
            self.control.ask(connection.address.control, request)
        except OSError:
            log.warning(
                "hard cancel failed: worker %s cannot be reached", connection.child.place.worker
            )

    # --- children that come ---

    def _on_directory_change(self) -> None:
        """Files of children or workers appeared or disappeared."""
        directory = self._directory
        if directory is None or self.closed:
            return
        for name in {address.pool for address in directory.children} | {
            pool for pool, _ in directory.workers
        }:
            self._get_or_create_pool(name)
        for name, pool in self._pools.items():
            pool.workers = {worker for where, worker in directory.workers if where == name}
        self._unusable &= directory.children
        connected = {child.address for child in self._connections}
        for address in directory.children - connected - self._unusable:
            self._connect(address)
        for pool in list(self._pools.values()):
            self._recheck_commands(pool)
            self._send_waiting(pool)

    def _connect(self, address: ChildAddress) -> None:
        try:
            connection = Connection(
                address,
                self._client_id,
                on_messages=self._on_messages,
                on_writable=self._on_writable,
                on_lost=self._on_lost,
            )
        except OSError as error:
            log.debug("child %s is not reached: %s", address.socket, error)
            if isinstance(error, BlockingIOError) or is_transient(error):
                self._connect_later()
            else:
                self._unusable.add(address)
        else:
            self._connections[connection.child] = connection
            self._pools[address.pool].add(connection.child)

    def _connect_later(self) -> None:
        if self._connect_timer is None:
            self._connect_timer = self.loop.call_later(_CONNECT_AGAIN_S, self._connect_again)

    def _connect_again(self) -> None:
        self._connect_timer = None
        self._on_directory_change()


def _crash_error(connection: Connection, call: Call, death: protocol.Death) -> ChildCrashed:
    """The error of a call whose child died."""
    child, pid = connection.child, connection.pid
    more = f", at attempt {call.deaths + 1}" if call.deaths else ""
    return ChildCrashed(
        f"the child {pid} of worker {child.place.worker} {death.how()}{more}",
        exit_code=death.code,
        signal=death.signal,
        lines=tuple(death.lines),
        worker=child.place.worker,
        pid=pid,
    )
