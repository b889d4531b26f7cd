"""Fair shares, and which partitions are read together."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cordata.services.subscription.membership import fair_share
from cordata.services.subscription.reader import cohorts

_HELD = st.dictionaries(
    st.sampled_from("abcdefgh"), st.integers(min_value=0, max_value=20), min_size=1
)


def test_share_of_one_is_all() -> None:
    assert fair_share("a", {"a": 0}, 16, salt="p") == 16


def test_left_overs_stay_where_they_are() -> None:
    held = {"a": 5, "b": 6, "c": 5}
    assert {one: fair_share(one, held, 16, salt="p") for one in held} == held


def test_single_partitions_of_many_subscriptions_go_to_different_processes() -> None:
    held = dict.fromkeys("abcd", 0)
    owners = Counter(
        one
        for number in range(100)
        for one in held
        if fair_share(one, held, 1, salt=f"shop.subscription_{number}")
    )
    assert sum(owners.values()) == 100 and min(owners.values()) > 10


@given(held=_HELD, partitions=st.integers(min_value=1, max_value=256))
def test_shares_make_up_all_partitions_and_differ_by_one_at_most(
    held: dict[str, int], partitions: int
) -> None:
    shares = [fair_share(one, held, partitions, salt="p") for one in held]
    assert sum(shares) == partitions
    assert max(shares) - min(shares) <= 1


@settings(max_examples=examples(200))
@given(
    partitions=st.integers(min_value=1, max_value=40),
    members=st.integers(min_value=1, max_value=7),
    data=st.data(),
)
def test_everybody_has_his_share_after_a_few_looks_whatever_the_order(
    partitions: int, members: int, data: st.DataObject
) -> None:
    names = [f"m{number}" for number in range(members)]
    owner: list[str | None] = [
        data.draw(st.sampled_from([None, *names]), label="owner") for _ in range(partitions)
    ]
    moves = 0
    for _ in range(3):
        for me in data.draw(st.permutations(names), label="order"):
            held = {one: owner.count(one) for one in names}
            share = fair_share(me, held, partitions, salt="p")
            while owner.count(me) > share:
                owner[owner.index(me)] = None
                moves += 1
            for number in range(partitions):
                if owner[number] is None and owner.count(me) < share:
                    owner[number] = me
    counts = [owner.count(one) for one in names]
    assert None not in owner and max(counts) - min(counts) <= 1
    assert moves <= partitions


def test_partitions_at_one_place_are_one_cohort() -> None:
    assert cohorts({0: 5, 1: 5, 2: 5}, 9) == [(5, 9, [0, 1, 2])]


def test_nothing_is_read_when_all_are_at_the_safe_position_or_beyond() -> None:
    assert cohorts({0: 9, 1: 12}, 9) == []


def test_cohort_that_is_behind_is_read_to_where_the_next_one_is() -> None:
    assert cohorts({0: 3, 1: 7, 2: 3, 3: 9}, 9) == [(7, 9, [1]), (3, 7, [0, 2])]


@given(
    read_to=st.dictionaries(st.integers(0, 15), st.integers(0, 50), min_size=1),
    safe=st.integers(0, 50),
    limit=st.integers(1, 9),
)
def test_cohorts_become_one_and_every_partition_reads_each_event_once(
    read_to: dict[int, int], safe: int, limit: int
) -> None:
    begun, place = dict(read_to), dict(read_to)
    seen: dict[int, list[int]] = {number: [] for number in place}
    for _ in range(800):
        plan = cohorts(place, safe)
        if not plan:
            break
        for after, until, numbers in plan:
            # Event n is of partition n % 16.
            page = [n for n in range(after + 1, until + 1) if n % 16 in numbers][:limit]
            end = page[-1] if len(page) == limit else until
            for number in numbers:
                seen[number] += [n for n in page if n % 16 == number]
                place[number] = end
    assert all(at >= safe for at in place.values())
    for number, events in seen.items():
        assert events == [n for n in range(begun[number] + 1, safe + 1) if n % 16 == number]
