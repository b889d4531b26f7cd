"""What the broker needs to know of an application's handlers: consumer groups, and the queue."""

from __future__ import annotations

from collections.abc import Sequence

from cordata.broker import Queue
from cordata.broker.factory import is_store
from cordata.broker.group import Group
from cordata.config.sections import BrokerConfig, EngineConfig
from cordata.core.retry import Backoff
from cordata.registry import Handler
from cordata.store import Store


def groups_of(config: BrokerConfig, handlers: Sequence[Handler]) -> list[Group]:
    """The consumer groups of an application. What wants the order of keys never goes by Redis.

    Raises: ConfigError.
    """
    if is_store(config):
        return [Group(one.group, one.type, one.key) for one in handlers]
    from cordata.broker.redis.relay import GROUP

    relay = Group(GROUP, "*")
    return [
        relay,
        *(Group(one.group, one.type, one.key, "store" if one.key else "redis") for one in handlers),
    ]


def make_queue(
    store: Store, handlers: Sequence[Handler], engine: EngineConfig, *, owner: str
) -> Queue:
    """The queue on the store, as the process `owner` sees it."""
    return Queue(
        store,
        owner=owner,
        retries={one.group: one.retries for one in handlers},
        keyed={one.group for one in handlers if one.key},
        backoff=Backoff(engine.retry_min_s, engine.retry_max_s),
    )
