"""A model of holders, a server and a network that does what it likes: who holds the lease?

Processes' clocks run at different speeds and are apart by any amount; messages are late, processes
die, are suspended, are cut off and come back. What decides is in store/postgres/lease.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_model
from tests.examples import examples

from cordata.store.fence import is_accepted
from cordata.store.postgres import lease

_STEP_S = 0.25
PROCESSES = st.integers(0, 1)


@dataclass
class Process:
    """One that wants the lease. Its clock is `offset + rate * time`."""

    rate: float
    offset: float
    #: Changes at each new session; what belongs to an old one is lost.
    session: int = 0
    locked: bool = False
    deadline: float = float("-inf")
    term: int | None = None
    suspended: bool = False
    cut: bool = False
    #: (session, what, own time when it was said), in their order.
    to_server: deque[tuple[int, str, float]] = field(default_factory=deque)
    to_process: deque[tuple[int, str, float]] = field(default_factory=deque)

    def clock(self, time: float) -> float:
        return self.offset + self.rate * time

    def trusts_itself(self, time: float) -> bool:
        return self.locked and lease.is_trusted(self.deadline, self.clock(time))

    def forget(self) -> None:
        self.locked, self.term, self.deadline = False, None, float("-inf")
        self.session += 1


class LeaseModel(RuleBasedStateMachine):
    """The rules are those of store/postgres/lease.py."""

    #: The moment from which a proof counts: when it was asked for, when it came.
    proof_counts_from: Callable[[float, float], float] = staticmethod(lambda asked, came: asked)
    #: Whether the server looks at the term.
    fenced = True

    @initialize(
        rates=st.lists(st.floats(0.9, 1.1), min_size=2, max_size=2),
        offsets=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2),
    )
    def begin(self, rates: list[float], offsets: list[float]) -> None:
        self.time = 0.0
        self.processes = [Process(r, o) for r, o in zip(rates, offsets, strict=True)]
        #: (process, session) that has the lock; who waits for it; when each was last heard of.
        self.lock: tuple[int, int] | None = None
        self.queue: list[tuple[int, int]] = []
        self.heard: dict[tuple[int, int], float] = {}
        self.newest: int | None = None
        #: On their way to the server, each on a connection of its own: (process, session, term).
        self.writes: list[tuple[int, int, int | None]] = []
        self.accepted: list[int] = []
        self.try_acquire(0, True)

    # What processes do.

    @rule(number=PROCESSES, quick=st.booleans())
    def try_acquire(self, number: int, quick: bool) -> None:
        """`quick`: nothing is in the way, until the term is taken."""
        one = self.processes[number]
        if one.suspended or one.trusts_itself(self.time) or (number, one.session) in self.heard:
            return
        one.forget()
        self._say(number, "lock")
        if quick and not one.cut:
            self._converse(number)
            self.take_term(number)
            if self.writes and self.writes[-1] == (number, one.session, None):
                self._arrive(len(self.writes) - 1)

    @rule(number=PROCESSES, quick=st.booleans())
    def ask_for_proof(self, number: int, quick: bool) -> None:
        one = self.processes[number]
        if not one.suspended and (number, one.session) in self.heard:
            self._say(number, "sync")
            if quick and not one.cut:
                self._converse(number)

    @rule(number=PROCESSES)
    def take_term(self, number: int) -> None:
        one = self.processes[number]
        if not one.suspended and one.term is None and one.trusts_itself(self.time):
            self.writes.append((number, one.session, None))

    @rule(number=PROCESSES, late=st.booleans())
    def write(self, number: int, late: bool) -> None:
        one = self.processes[number]
        if not one.suspended and one.term is not None and one.trusts_itself(self.time):
            self.writes.append((number, one.session, one.term))
            if not late:
                self._arrive(len(self.writes) - 1)

    @rule(
        number=PROCESSES,
        what=st.sampled_from(["suspend", "cut", "cut", "die", "lose power", "release"]),
    )
    def trouble(self, number: int, what: str) -> None:
        """A kernel tells the server that a process died; a host without power tells nobody."""
        one = self.processes[number]
        if what == "suspend":
            one.suspended ^= True
        elif what == "cut":
            one.cut ^= True
        elif what == "release" and one.locked and not one.suspended:
            self._say(number, "unlock")
            one.forget()
        elif what in ("die", "lose power"):
            if what == "die" and not one.cut:
                self._end(number, one.session)
            one.forget()
            one.suspended = False

    # What the network and the server do.

    @precondition(lambda self: any(one.to_server for one in self.processes))
    @rule(number=PROCESSES)
    def server_reads(self, number: int) -> None:
        one = self.processes[number]
        if one.cut or not one.to_server:
            return
        session, what, said = one.to_server.popleft()
        who = (number, session)
        if what == "lock":
            self.heard[who] = self.time
            if self.lock is None:
                self.lock = who
                one.to_process.append((session, "locked", said))
            else:
                self.queue.append(who)
        elif who in self.heard:
            self.heard[who] = self.time
            if what == "unlock":
                self._end(number, session)
            else:
                one.to_process.append((session, "proof", said))

    @precondition(lambda self: any(one.to_process for one in self.processes))
    @rule(number=PROCESSES)
    def process_reads(self, number: int) -> None:
        one = self.processes[number]
        if one.cut or one.suspended or not one.to_process:
            return
        session, what, said = one.to_process.popleft()
        if session != one.session:
            return
        if what == "came":  # from the queue, some time ago: it asks for a proof first
            self._say(number, "sync")
        else:
            one.locked = (number, session) == self.lock or one.locked or what == "locked"
            came = one.clock(self.time)
            one.deadline = lease.trusted_until(self.proof_counts_from(said, came))

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def write_arrives(self, data: st.DataObject) -> None:
        self._arrive(data.draw(st.integers(0, len(self.writes) - 1)))

    def _arrive(self, at: int) -> None:
        number, session, term = self.writes.pop(at)
        one = self.processes[number]
        if term is None:
            self.newest = 1 if self.newest is None else self.newest + 1
            if session == one.session and one.trusts_itself(self.time):
                one.term = self.newest
        elif not self.fenced or is_accepted(term, self.newest):
            self.accepted.append(term)

    @rule(rounds=st.integers(1, 4))
    def all_goes_well(self, rounds: int) -> None:
        """Whoever can ask for a proof does so each second, and is heard."""
        for _ in range(rounds * 4):
            self.time_passes(1)
            for number, one in enumerate(self.processes):
                self.ask_for_proof(number, True)
                if one.trusts_itself(self.time):
                    self.take_term(number)
                    while self.writes and self.writes[-1][:2] == (number, one.session):
                        self._arrive(len(self.writes) - 1)
                    self.write(number, False)
                self.one_at_most_trusts_itself()

    @rule(steps=st.sampled_from([1, 1, 2, 4, 16, 26, 40]))
    def time_passes(self, steps: int) -> None:
        """The server ends who is silent at the first moment at which it may."""
        for _ in range(steps):
            self.time += _STEP_S
            for number, session in list(self.heard):
                if self.time - self.heard[number, session] >= lease.SILENT_S:
                    self._end(number, session)

    def _converse(self, number: int) -> None:
        """All that is said is heard at once."""
        one = self.processes[number]
        while one.to_server or one.to_process:
            self.server_reads(number)
            self.process_reads(number)

    def _say(self, number: int, what: str) -> None:
        one = self.processes[number]
        one.to_server.append((one.session, what, one.clock(self.time)))

    def _end(self, number: int, session: int) -> None:
        """A session ends: its lock goes to who waits first."""
        who = (number, session)
        self.heard.pop(who, None)
        if who in self.queue:
            self.queue.remove(who)
        if self.lock == who:
            self.lock = self.queue.pop(0) if self.queue else None
            if self.lock is not None:
                successor, its_session = self.lock
                self.processes[successor].to_process.append((its_session, "came", 0.0))

    # What must be true at every moment.

    @invariant()
    def one_at_most_trusts_itself(self) -> None:
        holders = [one for one in self.processes if one.trusts_itself(self.time)]
        assert len(holders) <= 1

    @invariant()
    def no_older_term_is_accepted_after_a_newer_one(self) -> None:
        assert self.accepted == sorted(self.accepted)


class ProofFromItsArrival(LeaseModel):
    """A mistake: a proof that was long on its way is taken for a fresh one."""

    proof_counts_from = staticmethod(lambda asked, came: came)


class Unfenced(LeaseModel):
    """A mistake: what was sent in time is accepted whenever it arrives."""

    fenced = False


def test_lease_has_one_holder_and_terms_only_grow() -> None:
    thorough = settings(
        max_examples=examples(100),
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_model(LeaseModel, settings=thorough)


def late_proof(model: LeaseModel) -> None:
    """A proof is long on its way; a moment after it came the server ends the session."""
    model.begin([1.0, 1.0], [0.0, 500.0])
    model.try_acquire(1, True)  # it stands in the queue
    for _ in range(4):  # as time goes by, the one in the queue is still there
        model.ask_for_proof(0, False)
        model.server_reads(0)
        for _ in range(27):
            model.time_passes(1)
            if model.time % 1 == 0:
                model.heard[1, model.processes[1].session] = model.time
        model.process_reads(0)
        model.one_at_most_trusts_itself()
        model.time_passes(1)
        for _ in range(3):
            model.process_reads(1)
            model.server_reads(1)
        model.one_at_most_trusts_itself()


def late_write(model: LeaseModel) -> None:
    """What a holder sent in time arrives when the next one has written already."""
    model.begin([1.0, 1.0], [0.0, 0.0])
    model.write(0, True)
    model.time_passes(40)
    model.try_acquire(1, True)
    model.write(1, False)
    model._arrive(0)
    model.no_older_term_is_accepted_after_a_newer_one()


@pytest.mark.parametrize(
    ("story", "mistake"), [(late_proof, ProofFromItsArrival), (late_write, Unfenced)]
)
def test_model_sees_the_mistake_in_a_story_that_ends_well_without_it(
    story: Callable[[LeaseModel], None], mistake: type[LeaseModel]
) -> None:
    story(LeaseModel())
    with pytest.raises(AssertionError):
        story(mistake())
