"""Which partitions a process owns, has too much of, and should claim."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordata.eventstore.partition import PartitionState, PartitionTable
from cordata.process import Process
from cordata.services.subscription.membership import plan

NOW = 1000


def state(number: int, owner: str | None, *, name: str = "p", term: int = 1) -> PartitionState:
    return PartitionState(
        subscription=name,
        partition=number,
        position=0,
        term=term,
        owner=owner,
        failing=None,
        attempts=0,
        next_at=None,
        history=None,
        blocked_at=None,
    )


def worker(owner: str, *, expires_at: int = NOW + 1, serves: str = "p") -> Process:
    return Process(
        id=owner,
        host="",
        boot="",
        pid=1,
        start=1,
        subscriptions=frozenset(serves),
        expires_at=expires_at,
    )


def table(owners: list[str | None], *workers: Process) -> PartitionTable:
    return PartitionTable(
        at=NOW,
        partitions={"p": len(owners)},
        states=[state(number, owner) for number, owner in enumerate(owners)],
        processes=workers,
    )


def test_all_is_claimed_by_the_only_one() -> None:
    found = plan("a", table([None] * 4, worker("a")))
    assert sorted(found.wanted["p"]) == [0, 1, 2, 3] and not found.excess and not found.owned


def test_half_is_released_when_another_one_came() -> None:
    seen = table(["a"] * 4, worker("a"), worker("b"))
    assert plan("a", seen).excess == {"p": 2} and len(plan("a", seen).owned) == 4
    assert plan("b", seen).wanted == {} and plan("b", seen).excess == {}


def test_partitions_of_one_that_is_not_counted_as_alive_are_free() -> None:
    for gone in ((), (worker("b", expires_at=NOW),)):
        seen = table(["a", "b", "b", "a"], worker("a"), *gone)
        assert sorted(plan("a", seen).wanted["p"]) == [1, 2]


def test_no_more_is_claimed_than_the_fair_share() -> None:
    seen = table([None] * 6, worker("a"), worker("b"), worker("c"))
    assert [len(plan(one, seen).wanted["p"]) for one in "abc"] == [2, 2, 2]
    firsts = {plan(one, seen).wanted["p"][0] for one in "abcdefgh"}
    assert len(firsts) > 1  # they do not all begin at the same one


def test_process_that_does_not_serve_a_subscription_gets_nothing_of_it() -> None:
    seen = table([None] * 4, worker("a"), worker("b", serves="q"))
    assert len(plan("a", seen).wanted["p"]) == 4


def test_partition_of_an_older_version_of_the_code_stays_with_it_while_it_lives() -> None:
    """It holds one, but does not list the subscription any more: it is about to let go."""
    seen = table(["b", None, None, None], worker("a"), worker("b", serves="q"))
    assert sorted(plan("a", seen).wanted["p"]) == [1, 2, 3]


def test_process_knows_what_it_lacks_though_nothing_is_free_yet() -> None:
    seen = table(["a"] * 4, worker("a"), worker("b"))
    assert (plan("b", seen).missing, plan("a", seen).missing) == (2, 0)


def step(one: str, owners: list[str | None], workers: list[Process]) -> tuple[bool, bool]:
    """A look of one process; whether it looks again soon, and whether it released something."""
    found = plan(one, table(owners, *workers))
    wanted = found.wanted.get("p", [])
    for number in wanted:
        owners[number] = one
    held = [number for number, owner in enumerate(owners) if owner == one]
    released = held[: found.excess.get("p", 0)]
    for number in released:
        owners[number] = None
    return max(found.missing, found.free) > len(wanted), bool(released)


@given(partitions=st.integers(1, 9), count=st.integers(1, 4), data=st.data())
def test_nothing_stays_free_when_nobody_sees_a_reason_to_look_again(
    partitions: int, count: int, data: st.DataObject
) -> None:
    owners: list[str | None] = [None] * partitions
    workers = [worker(one) for one in "abcd"[:count]]
    again = {one.id for one in workers}
    for _ in range(20):
        for one in data.draw(st.permutations(sorted(again))):
            more, released = step(one, owners, workers)
            if released:
                again.update(other.id for other in workers)
            if not more:
                again.discard(one)
    assert not again and None not in owners
