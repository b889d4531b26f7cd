"""What the groups of one worker have room for, beside what the relay may bring."""

from __future__ import annotations

from typing import cast

from tests.unit.engine.messages import message

from cordata.config.sections import EngineConfig
from cordata.core.outbox import BACKFILL
from cordata.registry import Handler, HandlerFunction
from cordata.services.groups import Groups


def groups(**keyed: bool) -> Groups:
    handlers = [
        Handler(
            type="t",
            group=name,
            function=cast(HandlerFunction, None),
            retries=0,
            concurrency=4,
            timeout_s=60.0,
            key=key,
        )
        for name, key in keyed.items()
    ]
    return Groups(handlers, EngineConfig())


def test_room_is_kept_for_what_the_relay_may_bring_until_it_has_brought_it() -> None:
    found = groups(a=False, b=False)
    assert not found.expecting
    assert found.expect() == {"a": 4, "b": 4}
    assert found.expecting
    assert found.wanted()["a"].live == 0  # nobody claims the same room meanwhile
    assert found.expect() == {}
    assert found.receive([message(1, group="a"), message(2, group="b")]) == []
    assert not found.expecting
    assert found.known() == {("a", 1), ("b", 2)}
    assert found.wanted()["a"].live == 3


def test_relay_brings_nothing_where_order_is_kept_or_something_was_left_behind() -> None:
    found = groups(a=False, k=True, late=False, full=False)
    found["late"].live.more = True
    found.put([message(n, group="full") for n in range(4)])
    assert found.expect() == {"a": 4}


def test_messages_of_closed_groups_come_back() -> None:
    found = groups(a=False, b=False)
    found.put([message(1, group="a")])
    assert [m.id for m in found["a"].close()] == [1]
    late = found.receive(
        [message(2, group="a"), message(3, group="b"), message(4, group="b", lane=BACKFILL)]
    )
    assert [m.id for m in late] == [2]
    assert found.known() == {("b", 3), ("b", 4)}
    assert found.expect() == {"b": 3}
