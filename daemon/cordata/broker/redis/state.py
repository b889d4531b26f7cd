"""The state of Redis as the store records it, and the creation of groups in Redis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from redis.exceptions import ResponseError

from cordata.broker.redis.server import RedisServer, code_of
from cordata.broker.redis.stream import Keys
from cordata.store import Tx

#: Notified to wake the primary: Redis may have lost data, or a process is gone.
REDIS_TOPIC = "redis"
#: Positions of make_groups: all entries of the stream, or only later ones.
ALL, NEW = "0", "$"


@dataclass(frozen=True, kw_only=True)
class StoredState:
    """The rows that the store has about Redis."""

    #: Whether a primary has ever examined a Redis.
    is_known: bool = False
    #: They identify the process of the server and its data; "" while the primary recovers it.
    run_id: str = ""
    epoch: str = ""
    #: Entries up to this position may have been handled before Redis lost data.
    recheck_to: int = 0
    #: The groups that read streams, each with its event type.
    groups: Mapping[str, str] = field(default_factory=dict)
    #: Event type -> position of the last entry that a relay has added.
    last: Mapping[str, int] = field(default_factory=dict)

    @property
    def types(self) -> set[str]:
        """The types that have a stream."""
        return {*self.groups.values(), *self.last}


async def load(tx: Tx) -> StoredState:
    """For a unit: the state as the tables have it."""
    server = await tx.fetch_one("redis.server")
    groups = await tx.fetch_all("redis.groups")
    last = await tx.fetch_all("redis.last")
    return StoredState(
        is_known=server is not None,
        run_id=server["run_id"] if server else "",
        epoch=server["epoch"] if server else "",
        recheck_to=server["recheck_to"] if server else 0,
        groups={row["group"]: row["type"] for row in groups},
        last={row["type"]: row["entry"] for row in last},
    )


async def make_groups(
    server: RedisServer, keys: Keys, groups: Mapping[str, str], *, start: str
) -> None:
    """Create the groups (group -> event type) that Redis does not have, and their streams.

    Raises: BrokerUnavailable; ResponseError when Redis refuses one, after all were tried.
    """
    if not groups:
        return
    pipe = server.pipeline()
    pipe.sadd(keys.types, *sorted(set(groups.values())))
    for group, type in sorted(groups.items()):
        pipe.xgroup_create(keys.of(type), group, start, mkstream=True)
    for reply in await server.execute(pipe):
        if isinstance(reply, ResponseError) and code_of(reply) != "BUSYGROUP":
            raise reply
