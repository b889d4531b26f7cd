"""Which entries a relay may hand over: none before an earlier one of its key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordata.core.outbox import Place, in_key_order


@given(
    keys=st.lists(st.sampled_from("abc-"), min_size=1, max_size=12),
    data=st.data(),
    limit=st.integers(1, 6),
)
def test_no_entry_goes_before_an_earlier_one_of_its_key(
    keys: list[str], data: st.DataObject, limit: int
) -> None:
    """Any choice of any relay, while any others are in the hands of a second one."""
    waiting = [Place(n, "t", None if key == "-" else key) for n, key in enumerate(keys)]
    others = data.draw(st.sets(st.sampled_from([p.id for p in waiting])))
    free = [p for p in waiting if p.id not in others]
    chosen = data.draw(st.permutations(free)).copy()[:limit]
    last = {p.key: max(q.id for q in chosen if q.key == p.key) for p in chosen if p.key}
    taken = {p.id for p in chosen}
    ahead = [
        p
        for key in data.draw(st.permutations(sorted(last)))
        for p in waiting
        if p.key == key and p.id < last[key] and p.id not in taken
    ][:limit]
    go = in_key_order(chosen, ahead, {p.id for p in ahead} - others, limit=limit)
    assert go <= taken | {p.id for p in ahead} - others
    for place in waiting:
        if place.id in go and place.key is not None:
            assert all(p.id in go for p in waiting if p.key == place.key and p.id < place.id)
    assert go >= {p.id for p in chosen if p.key is None}
    # Somebody always goes on: what the first relay has in hand, it hands over.
    if chosen and not others:
        assert go


def test_all_go_when_nothing_is_ahead() -> None:
    places = [Place(1, "t", "a"), Place(2, "t", None), Place(3, "u", "a")]
    assert in_key_order(places, [], (), limit=3) == {1, 2, 3}


def test_key_waits_when_another_relay_holds_its_first_one() -> None:
    places = [Place(5, "t", "a"), Place(6, "t", "b"), Place(7, "u", "a")]
    ahead = [Place(3, "t", "a"), Place(4, "t", "a")]
    assert in_key_order(places, ahead, {4}, limit=9) == {6, 7}
    assert in_key_order(places, ahead, {3}, limit=9) == {3, 6, 7}
    assert in_key_order(places, ahead, {3, 4}, limit=9) == {3, 4, 5, 6, 7}
    assert in_key_order(places, ahead, {3, 4}, limit=2) == {3, 4}
