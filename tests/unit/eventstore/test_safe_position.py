"""Up to where events may be read: nothing that commits later is ever below."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import examples

from cordata.eventstore.log import SafePosition


def test_all_is_safe_when_nothing_is_in_flight() -> None:
    safe = SafePosition()
    assert safe.update(7, []) == 7
    assert safe.update(9, []) == 9


def test_mark_is_safe_when_all_that_were_in_flight_at_it_have_ended() -> None:
    safe = SafePosition()
    assert safe.update(7, ["a", "b"]) == 0
    assert safe.update(9, ["b", "c"]) == 0
    assert safe.update(9, ["c"]) == 7
    assert safe.waiting_for == {"c"}
    assert safe.update(12, ["d"]) == 9


def test_safe_position_stays_when_a_transaction_never_ends() -> None:
    safe = SafePosition()
    safe.update(5, [])
    for position in range(6, 60):
        assert safe.update(position, ["stuck", f"t{position}"]) == 5
    assert safe.waiting_for == {"stuck"}
    assert safe.update(60, ["t60"]) >= 6


def test_position_goes_on_when_transactions_overlap_without_end() -> None:
    safe = SafePosition()
    for number in range(100):
        safe.update(number, [f"t{number}", f"t{number + 1}", f"t{number + 2}"])
    assert safe.safe >= 90


class Log(RuleBasedStateMachine):
    """Writers that get positions, commit in any order or roll back, and one reader."""

    def __init__(self) -> None:
        super().__init__()
        self.safe = SafePosition()
        self.given = 0
        self.numbers = 0
        self.open: dict[str, list[int]] = {}
        self.committed: set[int] = set()
        self.read: list[int] = []
        #: A look is two steps in the database: others may act between them.
        self.mark: int | None = None

    @rule()
    def begin(self) -> None:
        self.numbers += 1
        self.open[f"t{self.numbers}"] = []

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        self.given += 1
        self.open[name].append(self.given)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        positions = self.open.pop(data.draw(st.sampled_from(sorted(self.open))))
        if commit:
            self.committed |= set(positions)
            assert not [p for p in positions if p <= self.safe.safe], "the reader missed one"

    @precondition(lambda self: self.mark is None)
    @rule()
    def look_at_the_mark(self) -> None:
        self.mark = self.given

    @precondition(lambda self: self.mark is not None)
    @rule()
    def look_at_who_is_in_flight_and_read(self) -> None:
        assert self.mark is not None
        in_flight = [name for name, positions in self.open.items() if positions]
        safe = self.safe.update(self.mark, in_flight)
        self.mark = None
        after = self.read[-1] if self.read else 0
        self.read += sorted(p for p in self.committed if after < p <= safe)

    @invariant()
    def nothing_is_read_twice_or_out_of_order(self) -> None:
        assert self.read == sorted(set(self.read))

    def teardown(self) -> None:
        """Once all have ended, all is read."""
        for positions in self.open.values():
            self.committed |= set(positions)
        self.open.clear()
        self.mark = self.given
        self.look_at_who_is_in_flight_and_read()
        assert set(self.read) == self.committed


TestLog = Log.TestCase
TestLog.settings = settings(max_examples=examples(60), stateful_step_count=60, deadline=None)
