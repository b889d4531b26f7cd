"""Publishing again: who has handled an event leaves it alone, unless told to forget it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import known, opened, publish, rows, until

from cordata.app import App
from cordata.broker.inspection import DeadLetters, Filter, Outbox, Replayed, UnknownGroup
from cordata.context import Event, EventContext
from cordata.errors import PermanentError
from cordata.store import Store

ALL = Filter()


class Groups:
    """An App of several groups of one type; what each handled, in order."""

    def __init__(self, *names: str, broken: str = "") -> None:
        self.app = App("t")
        self.handled: dict[str, list[str]] = {name: [] for name in names}
        for name in names:
            self._add(name, fails=name == broken)

    def _add(self, name: str, *, fails: bool) -> None:
        @self.app.on("thing.done", group=name, retries=0, concurrency=1)
        async def handle(event: Event, ctx: EventContext) -> None:
            if fails:
                raise PermanentError("broken")
            self.handled[name].append(event.id)


async def run_until_idle(store: Store, state: Path, groups: Groups) -> None:
    async def nothing_left() -> bool:
        (left,) = await rows(store, "messages_left")
        return bool(left["count"] == 0)

    async with running(build(store, state, groups.app)):
        await until(nothing_left)


async def test_group_that_came_later_gets_what_was_published_before(state: Path) -> None:
    async with opened(state) as store:
        early, told = Groups("early"), list[tuple[int, float]]()
        await known(store, early.app)
        ids = await publish(store, 450)
        await publish(store, 3, type_="thing.other")
        await run_until_idle(store, state, early)
        both = Groups("early", "late")
        async with running(build(store, state, both.app)):
            pass  # registers the second group
        done = await Outbox(store).replay(
            ALL, progress=lambda count, share: told.append((count, share))
        )
        assert done == Replayed(events=453, messages=450, handled=450)
        assert told[-1] == (453, 1.0) and len(told) >= 3
        assert [share for _, share in told] == sorted(share for _, share in told)
        await run_until_idle(store, state, both)
        assert both.handled == {"early": [], "late": ids}
        again = await Outbox(store).replay(Filter(type="thing.done"), group="late")
        assert again == Replayed(events=450, messages=0, handled=450)


async def test_group_does_it_once_more_when_its_marks_are_forgotten(state: Path) -> None:
    async with opened(state) as store:
        groups = Groups("one", "two")
        await known(store, groups.app)
        first, second = await publish(store, 2)
        await run_until_idle(store, state, groups)
        done = await Outbox(store).replay(Filter(event_id=second), group="two", again=True)
        assert done == Replayed(events=1, messages=1)
        await run_until_idle(store, state, groups)
        assert groups.handled == {"one": [first, second], "two": [first, second, second]}
        (marks,) = await rows(store, "handled_count")
        assert marks["count"] == 4


async def test_what_a_group_has_in_hand_or_as_dead_letter_is_left_alone(state: Path) -> None:
    async with opened(state) as store:
        groups = Groups("one", broken="one")
        await known(store, groups.app)
        await publish(store, 2)
        await run_until_idle(store, state, groups)
        done = await Outbox(store).replay(ALL, group="one", again=True)
        assert done == Replayed(events=2, messages=0, dead=2)
        assert len((await DeadLetters(store).page(ALL, limit=9)).items) == 2


async def test_events_are_chosen_by_type_and_time(state: Path) -> None:
    async with opened(state) as store:
        groups = Groups("one")
        await known(store, groups.app)
        (first,) = await publish(store, 1)
        moment = store.now_us()
        (second,) = await publish(store, 1)
        await run_until_idle(store, state, groups)
        for wanted, count in (
            (Filter(before=moment), 1),
            (Filter(since=moment), 1),
            (Filter(type="thing.done"), 2),
            (Filter(type="other"), 0),
            (Filter(since=moment, before=moment), 0),
            (Filter(event_id=first), 1),
            (Filter(event_id="none"), 0),
            (replace(ALL, since=2**62), 0),
        ):
            assert (await Outbox(store).replay(wanted)).events == count, wanted
        assert Counter(groups.handled["one"]) == Counter([first, second])


async def test_unknown_group_is_refused_with_those_that_are_known(state: Path) -> None:
    async with opened(state) as store:
        async with running(build(store, state, Groups("one", "two").app)):
            pass
        with pytest.raises(UnknownGroup) as caught:
            await Outbox(store).replay(ALL, group="three")
        assert caught.value.hint == "there are: one, two"
        with pytest.raises(UnknownGroup, match=r"handles thing\.done, not other"):
            await Outbox(store).replay(Filter(type="other"), group="one")
        with pytest.raises(ValueError):
            await Outbox(store).replay(ALL, again=True)
