"""The actions: one line for each value of the form field `action`, with its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from alpinehub.alpinebits.actions.acknowledge import acknowledge_requests
from alpinehub.alpinebits.actions.events import receive_events
from alpinehub.alpinebits.actions.freerooms import receive_avail, receive_counts
from alpinehub.alpinebits.actions.handshake import handshake, send_capabilities, send_version
from alpinehub.alpinebits.actions.inventory import (
    receive_info,
    receive_inventory,
    send_info,
    send_inventory,
)
from alpinehub.alpinebits.actions.rate_plans import receive_rate_plans, send_base_rates
from alpinehub.alpinebits.actions.read import read_requests
from alpinehub.alpinebits.actions.status import update_statuses
from alpinehub.alpinebits.call import Answer, Call
from alpinehub.alpinebits.protocol import (
    ACKNOWLEDGE,
    AVAIL,
    BASE_RATES,
    EVENT_REPORTS,
    GET_CAPABILITIES,
    GET_VERSION,
    HANDSHAKE,
    INFO_PULL,
    INFO_PUSH,
    INV_COUNT,
    INVENTORY_PULL,
    INVENTORY_PUSH,
    NEWEST,
    RATE_PLANS,
    READ,
    STATUS_UPDATE,
    Protocol,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A request that hotel software may make; what is announced of it is in `capability.py`."""

    name: str
    #: Years of the first and last protocol version that has it.
    since: int
    until: int = NEWEST
    handle: Callable[[Call], Awaitable[Answer]]


ACTIONS: Final = (
    Action(name=GET_VERSION, since=2017, until=2017, handle=send_version),
    Action(name=GET_CAPABILITIES, since=2017, until=2017, handle=send_capabilities),
    Action(name=HANDSHAKE, since=2018, handle=handshake),
    Action(name=READ, since=2017, handle=read_requests),
    Action(name=ACKNOWLEDGE, since=2017, handle=acknowledge_requests),
    Action(name=STATUS_UPDATE, since=2022, handle=update_statuses),
    Action(name=AVAIL, since=2017, until=2018, handle=receive_avail),
    Action(name=INV_COUNT, since=2020, handle=receive_counts),
    Action(name=INVENTORY_PUSH, since=2017, handle=receive_inventory),
    Action(name=INFO_PUSH, since=2017, handle=receive_info),
    Action(name=INVENTORY_PULL, since=2017, handle=send_inventory),
    Action(name=INFO_PULL, since=2017, handle=send_info),
    Action(name=RATE_PLANS, since=2017, handle=receive_rate_plans),
    Action(name=BASE_RATES, since=2017, handle=send_base_rates),
    Action(name=EVENT_REPORTS, since=2020, handle=receive_events),
)


def find(name: str, protocol: Protocol) -> Action | None:
    """The action of that name in a version; None: it has none."""
    for action in ACTIONS:
        if action.name == name and action.since <= protocol.year <= action.until:
            return action
    return None
