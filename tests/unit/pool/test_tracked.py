"""A session as a command sees it: what it reads, and what is noted of its changes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw, msgpack

from cordata.pool.child.tracked import Session


def session(counters: dict[str, int] | None = None, **data: Any) -> Session:
    raw = {key: Raw(msgpack.encode(value)) for key, value in data.items()}
    return Session("s", "1", "hint", raw, counters or {})


def test_session_is_a_mapping() -> None:
    one = session(a=1, b=[2])
    assert (one.id, one.worker, dict(one), len(one)) == ("s", "1", {"a": 1, "b": [2]}, 2)
    one["c"] = {"x": None}
    del one["a"]
    assert dict(one) == {"b": [2], "c": {"x": None}}
    assert "a" not in one and one.get("a") is None
    with pytest.raises(KeyError):
        one["a"]
    with pytest.raises(KeyError):
        del one["a"]
    one["a"] = 5
    assert (one["a"], len(one)) == (5, 3)


def test_session_notes_its_changes_only() -> None:
    one = session(a=1, b=2)
    assert (one["a"], one.set, one.deleted, one.counted) == (1, {}, {}, {})
    one["a"] = 7
    one["c"] = 8
    del one["b"], one["c"]
    assert {key: msgpack.decode(raw) for key, raw in one.set.items()} == {"a": 7}
    assert list(one.deleted) == ["b"]


def test_value_that_was_read_is_kept_by_assigning_it() -> None:
    one = session(a=[1])
    one["a"].append(2)
    assert (one["a"], one.set) == ([1, 2], {})
    one["a"] = one["a"]
    one["a"].append(3)
    assert msgpack.decode(one.set["a"]) == [1, 2]


def test_counters_add_up() -> None:
    counters = {"seen": 4}
    one = session(counters)
    one.count(seen=1, new=2)
    one.count(seen=1, none=0)
    assert one.counters == {"seen": 6, "new": 2}
    assert (one.counted, counters) == ({"seen": 2, "new": 2}, {"seen": 4})


def test_session_refuses_what_messagepack_has_not() -> None:
    one: Any = session()
    with pytest.raises(TypeError):
        one["a"] = object()
    with pytest.raises(TypeError):
        one[1] = 1
    with pytest.raises(TypeError):
        one.count(seen=0.5)
    with pytest.raises(ValueError, match="201 characters"):
        one["x" * 201] = 1
    assert one.set == one.counted == {}
