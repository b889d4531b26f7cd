"""Sessions against a dict with ends; and their journal, cut or damaged at any byte."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import Raw, msgpack

from cordata.core.pool import record
from cordata.core.pool.globals import Globals
from cordata.core.pool.message import Delta
from cordata.core.pool.session import SessionTable
from cordata.core.pool.shelf import ENTRY, SessionLimits
from cordata.errors import SessionExists, SessionNotFound, SessionQuotaExceeded

#: Wall time at monotonic 0, in the tests.
WALL = 1_000_000_000_000_000
IDS = ("a", "b", "c")
#: Of one session, of all, of the globals: about three, five and three entries.
ONE, ALL, SHARED = 45 + 3 * ENTRY, 75 + 5 * ENTRY, 25 + 3 * ENTRY
LIMITS = SessionLimits(max_sessions=3, max_session_bytes=ONE, max_sessions_bytes=ALL)
ids = st.sampled_from(IDS)
values = st.dictionaries(st.sampled_from(("x", "y", "ü")), st.integers(0, 2**40), max_size=3)
counts = st.dictionaries(st.sampled_from(("n", "m")), st.integers(-5, 5), max_size=2)


def wall_us(at: float) -> int:
    return WALL + round(at * 1e6)


def table(limits: SessionLimits = LIMITS) -> SessionTable:
    made = itertools.count()
    return SessionTable(limits, new_id=lambda: f"made-{next(made)}", to_wall_us=wall_us)


def raw(data: dict[str, int]) -> dict[str, Raw]:
    return {key: Raw(msgpack.encode(value)) for key, value in data.items()}


def plain(data: dict[str, Raw]) -> dict[str, int]:
    return {key: msgpack.decode(value) for key, value in data.items()}


def contents(sessions: SessionTable, now: float) -> dict[str, Any]:
    found = (session for id in IDS if (session := sessions._sessions.get(id)))
    return {
        one.id: (plain(one.data), one.counters, one.version, one.ttl_s, one.worker, one.affinity)
        for one in found
        if one.expires > now
    }


def size(data: dict[str, int], counters: dict[str, int]) -> int:
    held = sum(len(k.encode()) + len(msgpack.encode(v)) + ENTRY for k, v in data.items())
    return held + sum(len(k.encode()) + 8 + ENTRY for k in counters)


class TableAgainstDict(RuleBasedStateMachine):
    """The model: id -> [data, counters, ttl, expires, worker]."""

    def __init__(self) -> None:
        super().__init__()
        self.table = table()
        self.model: dict[str, list[Any]] = {}
        self.file = record.MAGIC
        self.now = 0.0
        self.versions: list[int] = []

    def alive(self, id: str) -> bool:
        return id in self.model and self.model[id][3] > self.now

    def fits(self, id: str, data: dict[str, int], counters: dict[str, int]) -> bool:
        before = size(*self.model[id][:2]) if id in self.model else 0
        after = size(data, counters)
        held = sum(size(*one[:2]) for other, one in self.model.items() if other != id)
        # Expired ones that nobody looked at may still be in the books.
        return after <= before or (after <= ONE and held + after <= ALL)

    def purge(self) -> None:
        self.model = {id: one for id, one in self.model.items() if one[3] > self.now}

    @rule(step_s=st.sampled_from((0.0, 0.5, 3.0, 10.0)), sweep=st.booleans())
    def time(self, step_s: float, sweep: bool) -> None:
        self.now += step_s
        if sweep:
            self.table.sweep(self.now)

    @rule(id=ids, data=values, ttl_s=st.sampled_from((2.0, 8.0)))
    def create(self, id: str, data: dict[str, int], ttl_s: float) -> None:
        self.look()
        if self.alive(id):
            with pytest.raises(SessionExists):
                self.table.create(id, self.now, data=raw(data), ttl_s=ttl_s)
        elif not self.fits(id, data, {}):
            with pytest.raises(SessionQuotaExceeded):
                self.table.create(id, self.now, data=raw(data), ttl_s=ttl_s)
        else:
            self.table.create(id, self.now, data=raw(data), ttl_s=ttl_s, worker="1")
            self.model[id] = [data, {}, ttl_s, self.now + ttl_s, "1"]

    @rule(id=ids, data=values, delete=st.lists(st.sampled_from(("x", "q")), max_size=2))
    def update(self, id: str, data: dict[str, int], delete: list[str]) -> None:
        self.look()
        if not self.alive(id):
            with pytest.raises(SessionNotFound):
                self.table.update(id, self.now, set=raw(data), delete=delete)
            return
        one = self.model[id]
        wanted = {k: v for k, v in one[0].items() if k not in delete} | data
        if not self.fits(id, wanted, one[1]):
            with pytest.raises(SessionQuotaExceeded):
                self.table.update(id, self.now, set=raw(data), delete=delete)
            return
        self.table.update(id, self.now, set=raw(data), delete=delete, worker="2")
        self.model[id] = [wanted, one[1], one[2], self.now + one[2], "2"]

    @rule(id=ids, data=values, by=counts)
    def apply(self, id: str, data: dict[str, int], by: dict[str, int]) -> None:
        self.look()
        delta = Delta(set=raw(data), cnt=by)
        if not self.alive(id):
            assert self.table.apply(id, delta, self.now) is None
            assert id not in self.table._sessions
            return
        one = self.model[id]
        counters = one[1] | {name: one[1].get(name, 0) + count for name, count in by.items()}
        if not self.fits(id, one[0] | data, counters):
            with pytest.raises(SessionQuotaExceeded):
                self.table.apply(id, delta, self.now)
            return
        assert self.table.apply(id, delta, self.now) is not None
        self.model[id] = [one[0] | data, counters, one[2], self.now + one[2], one[4]]

    @rule(id=ids, ttl_s=st.sampled_from((None, 1.0, 20.0)))
    def touch(self, id: str, ttl_s: float | None) -> None:
        found = self.table.touch(id, self.now, ttl_s)
        assert (found is not None) == self.alive(id)
        if found:
            self.model[id][2] = ttl_s or self.model[id][2]
            self.model[id][3] = self.now + self.model[id][2]

    @rule(id=ids)
    def delete(self, id: str) -> None:
        assert self.table.delete(id, self.now) == self.alive(id)
        self.model.pop(id, None)

    def look(self) -> None:
        """Every read removes what has expired, so the books of the two agree."""
        for id in IDS:
            self.table.peek(id, self.now)
        self.purge()

    @invariant()
    def agrees(self) -> None:
        self.look()
        for id in IDS:
            found = self.table.peek(id, self.now)
            assert (found is not None) == self.alive(id)
            if found:
                data, counters, ttl_s, expires, worker = self.model[id]
                assert (plain(found.data), found.counters) == (data, counters)
                assert (found.ttl_s, found.expires, found.worker) == (ttl_s, expires, worker)
                assert found.bytes == size(data, counters)
        assert self.table.bytes == sum(size(*one[:2]) for one in self.model.values())
        assert len(self.table) == len(self.model) == len(self.table._wheel)
        self.versions.append(self.table.version)
        assert self.versions == sorted(self.versions)

    @invariant()
    def journal_brings_it_back(self) -> None:
        for change in self.table.changes:
            self.file += record.encode(change)
        self.table.changes.clear()
        if touched := self.table.take_touched():
            self.file += record.encode(touched)
        again = table()
        for found in record.scan(self.file, len(record.MAGIC)):
            again.load(found.change, self.now, wall_us(self.now))
        assert found_end(self.file) == len(self.file)
        assert contents(again, self.now) == contents(self.table, self.now)
        again.sweep(self.now + 2.0)


def found_end(file: bytes) -> int:
    ends = [found.end for found in record.scan(file, len(record.MAGIC))]
    return ends[-1] if ends else len(record.MAGIC)


TableAgainstDict.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)
TestTable = TableAgainstDict.TestCase


def some_file() -> tuple[bytes, list[int]]:
    sessions, shared = table(SessionLimits()), Globals(1000)
    for n, id in enumerate(IDS):
        sessions.create(id, 0.0, data=raw({"x": n}))
        sessions.count(id, 1.0, {"n": n})
    sessions.delete("b", 2.0)
    shared.change(raw({"rate": 3}))
    file, ends = record.MAGIC, [len(record.MAGIC)]
    for change in [*sessions.changes, *shared.changes]:
        file += record.encode(change)
        ends.append(len(file))
    return file, ends


def test_scan_gives_the_longest_whole_part_when_the_file_is_cut_anywhere() -> None:
    file, ends = some_file()
    for cut in range(ends[0], len(file) + 1):
        found = [one.end for one in record.scan(file[:cut], ends[0])]
        assert found == [end for end in ends[1:] if end <= cut]


def test_scan_stops_before_the_damage_when_any_byte_is_flipped() -> None:
    file, ends = some_file()
    for at in range(ends[0], len(file)):
        broken = bytearray(file)
        broken[at] ^= 0x41
        found = [one.end for one in record.scan(bytes(broken), ends[0])]
        assert found == [end for end in ends[1:] if end <= at]


def test_scan_reads_a_record_as_large_as_the_configuration_lets_it_be() -> None:
    large = record.Put(id="a", v=1, ttl=9.0, x=1, d={"k": Raw(msgpack.encode(bytes(65 << 20)))})
    file = record.encode(large) + record.encode(record.Removed("b"))
    assert [type(one.change) for one in record.scan(file)] == [record.Put, record.Removed]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_scan_raises_nothing_when_bytes_are_any(data: bytes) -> None:
    assert all(found.end <= len(data) for found in record.scan(data))


def test_load_lets_no_session_live_longer_when_the_wall_clock_was_set_back() -> None:
    sessions = table(SessionLimits())
    sessions.load(record.Put(id="a", v=5, ttl=10.0, x=WALL + 10**15), 100.0, WALL)
    sessions.load(record.Put(id="b", v=6, ttl=10.0, x=WALL - 1), 100.0, WALL)
    assert sessions.peek("a", 109.9) is not None
    assert sessions.peek("a", 110.0) is None
    assert sessions.peek("b", 100.0) is None
    assert sessions.create("c", 100.0, data={}).version == 7


def test_count_stops_at_the_largest_integer() -> None:
    sessions = table(SessionLimits())
    sessions.create("a", 0.0, data={})
    sessions.count("a", 0.0, {"n": 2**63 - 2})
    assert sessions.count("a", 0.0, {"n": 5}) == {"n": 2**63 - 1}


def test_create_makes_room_when_expired_ones_fill_the_table() -> None:
    sessions = table(SessionLimits(max_sessions=2))
    for _ in range(2):
        sessions.create("", 0.0, data={}, ttl_s=1.0)
    with pytest.raises(SessionQuotaExceeded, match="2 sessions"):
        sessions.create("", 0.5, data={})
    assert sessions.create("", 5.0, data={}).id == "made-2"
    assert sessions.stats.expired == 2


def test_page_gives_them_by_id_and_none_that_expired() -> None:
    sessions = table(SessionLimits())
    for id, ttl_s in (("c", 9.0), ("a", 9.0), ("b", 1.0), ("d", 9.0)):
        sessions.create(id, 0.0, data={}, ttl_s=ttl_s)
    assert [one.id for one in sessions.page("", 2, 5.0)] == ["a", "c"]
    assert [one.id for one in sessions.page("c", 2, 5.0)] == ["d"]
    assert {put.id for put in sessions.snapshot()} == {"a", "b", "c", "d"}


class GlobalsAgainstDict(RuleBasedStateMachine):
    """Children that look now and then always have what the table has."""

    def __init__(self) -> None:
        super().__init__()
        self.globals = Globals(SHARED)
        self.model: dict[str, int] = {}
        self.children: list[tuple[int, dict[str, int]]] = [(-1, {}), (-1, {})]
        self.records: list[record.GlobalsChanged] = []

    @rule(data=values, delete=st.lists(st.sampled_from(("x", "y")), max_size=2))
    def change(self, data: dict[str, int], delete: list[str]) -> None:
        wanted = {k: v for k, v in self.model.items() if k not in delete} | data
        if size(wanted, {}) > max(SHARED, size(self.model, {})):
            with pytest.raises(SessionQuotaExceeded):
                self.globals.change(raw(data), delete)
        else:
            self.globals.change(raw(data), delete)
            self.model = wanted

    @rule(which=st.sampled_from((0, 1)))
    def child_runs(self, which: int) -> None:
        version, data = self.children[which]
        copy = self.globals.since(version)
        if copy is not None:
            data = {} if copy.full else data
            data = {k: v for k, v in data.items() if k not in copy.delete} | plain(copy.set)
        assert data == self.model
        self.children[which] = (self.globals.version, data)

    @invariant()
    def agrees(self) -> None:
        assert plain(self.globals.data) == self.model
        assert self.globals.bytes == size(self.model, {})
        self.records += self.globals.changes
        self.globals.changes.clear()
        again = Globals(SHARED)
        for change in [*self.records]:
            again.load(change)
        assert plain(again.data) == self.model
        again.load(self.globals.whole())
        assert (plain(again.data), again.version) == (self.model, self.globals.version)


GlobalsAgainstDict.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None
)
TestGlobals = GlobalsAgainstDict.TestCase


def test_since_gives_everything_when_too_many_keys_were_deleted() -> None:
    shared = Globals(10**6)
    version = shared.change(raw({"stays": 1}))
    for n in range(1200):
        shared.change(raw({f"k{n}": 1}))
        shared.change({}, [f"k{n}"])
    copy = shared.since(version)
    assert copy is not None
    assert (copy.full, plain(copy.set)) == (True, {"stays": 1})
    assert len(shared._order) <= 1001


def test_very_many_tiny_entries_count_as_what_they_take() -> None:
    sessions = table(SessionLimits())
    sessions.create("a", 0.0, data={})
    tiny = {f"{number:05}": Raw(b"\x01") for number in range(14_000)}
    sessions.update("a", 0.0, set=tiny)
    with pytest.raises(SessionQuotaExceeded):
        sessions.update("a", 0.0, set={f"x{key}": value for key, value in tiny.items()})
