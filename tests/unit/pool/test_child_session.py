"""A session as a command sees it: what it reads, and what is said of its changes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw, msgpack

from cordata.core.pool.order import News, Run, SessionCopy
from cordata.pool.child.session import Session, Shelf


def session(counters: dict[str, int] | None = None, **data: Any) -> Session:
    raw = {key: Raw(msgpack.encode(value)) for key, value in data.items()}
    return Session("s", "1", 3, raw, counters or {})


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


def test_session_tells_its_changes_only() -> None:
    one = session(a=1, b=2)
    assert (one["a"], one.delta()) == (1, None)
    one["a"] = 7
    one["c"] = 8
    del one["b"], one["c"]
    delta = one.delta()
    assert delta is not None
    assert (delta.v, delta.delete, delta.cnt) == (3, ["b"], {})
    assert {key: msgpack.decode(raw) for key, raw in delta.set.items()} == {"a": 7}


def test_value_that_was_read_is_kept_by_assigning_it() -> None:
    one = session(a=[1])
    one["a"].append(2)
    assert (one["a"], one.delta()) == ([1, 2], None)
    one["a"] = one["a"]
    one["a"].append(3)
    one.keep()
    assert session_again(one)["a"] == [1, 2]


def session_again(one: Session) -> Session:
    return Session("s", "", 0, one._before, {})


def test_counters_add_up() -> None:
    counters = {"seen": 4}
    one = session(counters)
    one.count(seen=1, new=2)
    one.count(seen=1, none=0)
    assert one.counters == {"seen": 6, "new": 2}
    delta = one.delta()
    assert delta is not None and delta.cnt == {"seen": 2, "new": 2}
    assert counters == {"seen": 4}
    one.keep()
    assert counters == {"seen": 6, "new": 2}


def test_session_refuses_what_messagepack_has_not() -> None:
    one: Any = session()
    with pytest.raises(TypeError):
        one["a"] = object()
    with pytest.raises(TypeError):
        one[1] = 1
    with pytest.raises(TypeError):
        one.count(seen=0.5)
    assert one.delta() is None


def test_session_of_a_client_that_has_the_child_on_loan_knows_its_worker() -> None:
    def of(copy: SessionCopy) -> str:
        found = shelf.session_of(Run(1, 1, "echo", s=copy))
        assert found is not None
        return found.worker

    def lent() -> str | None:
        found = shelf.lent("s")
        return None if found is None else found.worker

    shelf = Shelf("0")
    shelf.lend(["s"])
    assert lent() is None  # it is not here
    assert of(SessionCopy("s", full={})) == ""  # its first call, which binds it
    assert lent() is None
    shelf.lend(["s"])
    assert lent() == "0"
    assert of(SessionCopy("s", wk="2")) == "2"
    assert lent() == "2"
    of(SessionCopy("s", wk="2", full={}))  # of this copy nobody has said that it may be used
    assert lent() is None
    shelf.lend(["s"])
    shelf.session_of(News(f=["s"]))
    assert lent() is None
