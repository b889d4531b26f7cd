"""Poison, recycling, the tail of the output, and which sessions a child keeps."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from cordata.core.pool import copies, tail
from cordata.core.pool.poison import Poison
from cordata.core.pool.recycle import due, longest_age_s
from cordata.core.pool.registry import Child
from cordata.core.pool.shelf import Session

steps = st.lists(st.tuples(st.sampled_from(("died", "answered")), st.floats(0, 5)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_poison_refuses_exactly_after_so_many_deaths_in_a_row(
    steps: list[tuple[str, float]],
) -> None:
    poison, now, row, until = Poison(3, 4.0), 0.0, 0, -1.0
    for what, step_s in steps:
        now += step_s
        if what == "answered":
            poison.succeeded("x")
            row = 0
        else:
            row += 1
            said = poison.died("x", now)
            assert said == (row >= 3 and until <= now)
            if row >= 3:
                until, row = now + 4.0, 2
        refused = poison.refused_until("x", now)
        assert refused == (until if until > now else None)
        assert poison.refused(now) == ({"x": until - now} if until > now else {})
    assert poison.refused_until("y", now) is None


def test_due_names_the_limit_that_was_reached() -> None:
    none = {"max_calls": 0, "max_age_s": 0.0, "max_rss_bytes": 0}
    now = {"worker": "3", "calls": 50, "age_s": 100.0, "rss_bytes": 300 << 20}
    assert due(**none, **now) is None  # type: ignore[arg-type]
    assert due(**{**none, "max_calls": 51}, **now) is None  # type: ignore[arg-type]
    assert due(**{**none, "max_calls": 50}, **now) == "max_calls: 50 calls"  # type: ignore[arg-type]
    assert due(**{**none, "max_age_s": 90.0}, **now) == "max_age_s: 100 s"  # type: ignore[arg-type]
    assert due(**{**none, "max_age_s": 112.0}, **now) is None  # type: ignore[arg-type]
    assert (
        due(**{**none, "max_rss_bytes": 200 << 20}, **now)  # type: ignore[arg-type]
        == "max_rss_bytes: 300 MiB"
    )


def test_longest_age_spreads_the_workers_but_stays_the_same_for_each() -> None:
    ages = [longest_age_s(100.0, str(n)) for n in range(64)]
    assert all(90.0 <= age <= 110.0 for age in ages)
    assert len(set(ages)) == 64
    assert ages == [longest_age_s(100.0, str(n)) for n in range(64)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=30).map(lambda text: text * 60), max_size=60))
def test_tail_keeps_the_last_lines_within_its_bounds(lines: list[str]) -> None:
    kept = tail.Tail()
    for line in lines:
        kept.add(line, 7)
    found = kept.lines(7)
    assert len(found) <= tail.LINES
    assert sum(len(line.encode()) for line in found) <= tail.BYTES
    assert list(found) == [line[: tail.LINE] for line in lines[len(lines) - len(found) :]]
    assert not lines or found


def session(id: str, version: int, size: int = 10) -> Session:
    one = Session(id, ttl_s=1.0, affinity="hint", worker="")
    one.version, one.bytes = version, size
    one.data["k"] = Raw(b"\x01")
    return one


def child() -> Child:
    return Child("0", 1, 1, spare=False, now=0.0)


def test_send_says_nothing_of_a_session_that_the_child_has() -> None:
    kept, one = child(), session("a", 5)
    assert copies.send(kept, one)[0].full == one.data
    assert copies.send(kept, one)[0].full is None
    one.version = 6
    copies.keeps(kept, one, base=5, before=5)
    assert copies.send(kept, one)[0].full is None
    one.version = 8  # somebody else made 7 meanwhile
    copies.keeps(kept, one, base=6, before=7)
    copy, forget = copies.send(kept, one)
    assert (copy.full, forget) == (one.data, [])


def test_send_has_the_child_forget_what_was_dropped_or_longest_unused() -> None:
    kept = child()
    for n in range(copies.MAX_COPIES):
        assert copies.send(kept, session(str(n), n))[1] == []
    copies.send(kept, session("0", 0))
    assert copies.send(kept, session("new", 1))[1] == ["1"]
    copies.drop(kept, "5")
    copies.drop(kept, "never")
    assert copies.send(kept, session("0", 0))[1] == ["5"]
    large = session("large", 1, copies.MAX_COPIES_BYTES + 1)
    _, forget = copies.send(kept, large)
    assert len(forget) == copies.MAX_COPIES - 1
    assert (list(kept.copies), kept.copies_bytes) == (["large"], large.bytes)
    assert copies.send(kept, session("small", 1))[1] == ["large"]
    assert kept.copies_bytes == 10
