"""The start parameters that a worker passes to a child, as JSON in a memory file."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from cordata.pool.shared.paths import Place
from cordata.pool.shared.protocol import Affinity, CommandOptions

#: Descriptors of a child, beside 0, 1 and 2: the channel to the worker, the spec, its status page
#: and the socket on which it listens.
CHANNEL_FD, SPEC_FD, STATUS_FD, LISTEN_FD = 3, 4, 5, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """How many sessions, how large, how long. The keys are those of `[pool]`."""

    session_ttl_s: float = 3600.0
    affinity: Affinity = "hint"
    max_sessions: int = 100_000
    max_session_bytes: int = 1_048_576
    max_sessions_bytes: int = 268_435_456
    max_globals_bytes: int = 16_777_216


class ChildSpec(Struct, frozen=True, kw_only=True):
    """One child: its place, what it imports, its limits."""

    place: Place
    generation: int = 0
    pool: str
    #: Worker -> its named pool. Those of the default pool are not in it.
    pools: dict[str, str] = {}
    #: The directory of its socket: RUNTIME/pool/NAME.
    directory: str
    #: Pid of the worker: if the child has another parent, the worker died while the child started.
    parent: int = 0
    #: `sys.path` of the worker.
    path: tuple[str, ...]
    #: `module:function` by the name of the command.
    commands: dict[str, str]
    options: dict[str, CommandOptions] = {}
    inits: tuple[str, ...] = ()
    max_frame_bytes: int
    #: A stream ends after this long without a credit of its reader.
    unread_timeout_s: float = 60.0
    #: The file of the sessions, and their limits.
    sessions: str
    session_limits: SessionLimits
    #: The level of its loggers.
    log_level: str = "INFO"

    def is_of_pool(self, worker: str) -> bool:
        """Whether the worker is one of this pool."""
        # DEFAULT_POOL of config.pool, which a child does not import.
        return self.pools.get(worker, "default") == self.pool
