"""What all lanes of a process share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordata.broker import Owner
from cordata.config.sections import EngineConfig
from cordata.context import Context
from cordata.eventstore import Partitions
from cordata.services.subscription.deaths import Deaths

if TYPE_CHECKING:
    from cordata.services.subscription.lane import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Of one process."""

    ctx: Context
    partitions: Partitions
    owner: Owner
    config: EngineConfig
    #: Handlers that ran in processes which have died.
    deaths: Deaths
    #: Whether this process may regard its partitions as its own.
    leased: Callable[[], bool]
    #: A failed event is due again at once.
    hurried: bool
    #: Called after each event, and when a lane has ended.
    ended: Callable[[Lane], None]
    #: Called when an event is given up, or its partition blocked.
    gave_up: Callable[[], None]
