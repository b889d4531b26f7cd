"""A model of workers on several hosts that claim, handle, die, are cut off and come back.

Their hosts' clocks play no part; each is mistaken about the store's time by as much as a third of
the claim timeout, so two of them differ by two thirds. What decides is core/claim.py; that an
outcome counts only while its process holds the message, the stores' statements say (`AND owner =
:owner` in stream.sql), and the model says it after them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.stateful import run_state_machine_as_test as run_model

from cordata.core import claim

TIMEOUT_US = 60
RENEWAL_US = int(claim.renewal_s(TIMEOUT_US))
#: About the store's time.
MISTAKE_US = TIMEOUT_US // 3
HOSTS = (0, 0, 1, 1)
MESSAGES = 3
PROCESSES = st.integers(0, len(HOSTS) - 1)


@dataclass
class Message:
    """A row of the store."""

    owner: int | None = None
    until: int = 0
    attempts: int = 0
    done: bool = False
    #: How often a handler's effect was committed; the seen-mark allows it once.
    effects: int = 0


@dataclass
class Process:
    """One life of a worker."""

    id: int
    host: int
    #: The store's time, as it believes, is this much later.
    mistake: int
    alive: bool = True
    cut: bool = False
    suspended: bool = False
    renewed_at: int = 0
    #: Messages in its hands; those whose handler runs, and whether it was in time all along.
    held: set[int] = field(default_factory=set)
    running: dict[int, bool] = field(default_factory=dict)

    @property
    def able(self) -> bool:
        return self.alive and not self.cut and not self.suspended


class ClaimModel(RuleBasedStateMachine):
    """The rules are those of the broker, the subscriptions and the reclaim service."""

    #: Whether of an owner without a file it is known that it is of another host.
    knows_hosts = True
    #: Whether the mark is written in the transaction of the effect.
    marks = True

    @initialize(
        mistakes=st.lists(
            st.integers(-MISTAKE_US, MISTAKE_US), min_size=len(HOSTS), max_size=len(HOSTS)
        )
    )
    def begin(self, mistakes: list[int]) -> None:
        self.time = 1000
        self.messages = [Message() for _ in range(MESSAGES)]
        self.processes = [
            Process(n, host, mistake, renewed_at=self.time)
            for n, (host, mistake) in enumerate(zip(HOSTS, mistakes, strict=True))
        ]
        #: Every life there was, by its id.
        self.lives = list(self.processes)

    def now_us(self, one: Process) -> int:
        return self.time + one.mistake

    # What processes do.

    @rule(number=PROCESSES)
    def claim_all(self, number: int) -> None:
        one = self.processes[number]
        if not one.able:
            return
        if not one.held:
            one.renewed_at = self.time
        for n, message in enumerate(self.messages):
            if message.owner is None and not message.done:
                message.owner = one.id
                message.until = claim.claimed_until(self.now_us(one), timeout_us=TIMEOUT_US)
                one.held.add(n)

    @rule(number=PROCESSES, at=st.integers(0, MESSAGES - 1))
    def begin_handler(self, number: int, at: int) -> None:
        one = self.processes[number]
        if one.alive and not one.suspended and at in one.held:
            one.running.setdefault(at, self._in_time(one))

    @rule(number=PROCESSES, at=st.integers(0, MESSAGES - 1))
    def commit_effect(self, number: int, at: int) -> None:
        one = self.processes[number]
        if one.able and at in one.running:
            message = self.messages[at]
            if not self.marks or message.effects == 0:
                message.effects += 1

    @rule(number=PROCESSES, failed=st.booleans())
    def settle(self, number: int, failed: bool) -> None:
        """All its handlers end: well, if their effect is there; else, maybe, with a failure."""
        one = self.processes[number]
        if not one.able:
            return
        for at in list(one.running):
            message = self.messages[at]
            if not (message.effects or failed):
                continue
            if message.owner is not None and message.owner == one.id:
                message.owner = None
                message.done = message.effects > 0
                message.attempts += not message.done
            del one.running[at]
            one.held.discard(at)

    @rule(number=PROCESSES)
    def take_back(self, number: int) -> None:
        """One pass of the reclaim service."""
        one = self.processes[number]
        if not one.able:
            return
        for at, message in enumerate(self.messages):
            if message.owner is None or message.owner == one.id:
                continue
            owner = self.lives[message.owner]
            seen_from_here = owner.host == one.host or not self.knows_hosts
            file_tells = owner.alive and owner.host == one.host
            if claim.may_take_over(
                expired=claim.is_expired(message.until, self.now_us(one)),
                known_dead=seen_from_here and not file_tells,
            ):
                message.owner = None
                message.attempts += at in owner.running

    @rule(number=PROCESSES, what=st.sampled_from(["die", "cut", "suspend", "estimate"]))
    def trouble(self, number: int, what: str) -> None:
        one = self.processes[number]
        if what == "die":
            one.alive = False
            successor = Process(len(self.lives), one.host, one.mistake, renewed_at=self.time)
            self.lives.append(successor)
            self.processes[number] = successor
        elif what == "cut":
            one.cut ^= True
        elif what == "suspend":
            one.suspended ^= True
        else:
            one.mistake = -one.mistake

    @rule(steps=st.sampled_from([1, 5, 10, 20, 60, 90]))
    def time_passes(self, steps: int) -> None:
        for _ in range(steps):
            self.time += 1
            for one in self.processes:
                if one.able and one.held and self.time - one.renewed_at >= RENEWAL_US:
                    self._renew(one)
                if not self._in_time(one):
                    one.running = dict.fromkeys(one.running, False)

    def _renew(self, one: Process) -> None:
        one.renewed_at = self.time
        for message in self.messages:
            if message.owner == one.id:
                message.until = claim.claimed_until(self.now_us(one), timeout_us=TIMEOUT_US)

    def _in_time(self, one: Process) -> bool:
        """It renewed when it should, give or take a missed one's share of what is left."""
        return self.time - one.renewed_at <= TIMEOUT_US - 2 * MISTAKE_US

    # What must be true at every moment.

    @invariant()
    def effect_happens_once(self) -> None:
        assert all(message.effects <= 1 for message in self.messages)

    @invariant()
    def nobody_else_holds_what_one_handles_who_renews_in_time(self) -> None:
        for one in self.processes:
            for at, in_time in one.running.items():
                message = self.messages[at]
                if in_time and one.alive and not message.done:
                    assert message.owner == one.id

    @invariant()
    def nothing_is_lost(self) -> None:
        """Whatever is not done is ready, or held by one from whom it can be taken."""
        for message in self.messages:
            assert message.effects or not message.done
            assert message.owner is None or not message.done

    def teardown(self) -> None:
        """Once the trouble is over, everything is handled, by whoever is left."""
        if not hasattr(self, "processes"):
            return
        for one in self.processes:
            one.cut = one.suspended = False
        self.time_passes(1)
        for number, one in enumerate(self.processes[1:], start=1):
            one.alive = False
            self.processes[number] = Process(len(self.lives), one.host, 0)
            self.lives.append(self.processes[number])
        self.time_passes(2 * TIMEOUT_US)
        self.take_back(0)
        self.claim_all(0)
        for at in range(MESSAGES):
            self.begin_handler(0, at)
            self.commit_effect(0, at)
        self.settle(0, False)
        assert all(message.done and message.effects == 1 for message in self.messages)


class WithoutHosts(ClaimModel):
    """A mistake: an owner of another host has no file here, so it is taken for dead."""

    knows_hosts = False


class WithoutMarks(ClaimModel):
    """A mistake: an effect is committed without the mark that makes it the only one."""

    marks = False


def test_messages_are_handled_once_and_none_is_lost() -> None:
    thorough = settings(
        max_examples=100,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_model(ClaimModel, settings=thorough)


def taken_from_the_living(model: ClaimModel) -> None:
    model.begin([0, 0, 0, 0])
    model.claim_all(0)
    model.begin_handler(0, 0)
    model.take_back(1)
    model.take_back(2)
    model.nobody_else_holds_what_one_handles_who_renews_in_time()


def handled_again_after_being_cut_off(model: ClaimModel) -> None:
    model.begin([0, 0, 0, 0])
    model.claim_all(0)
    model.begin_handler(0, 0)
    model.trouble(0, "suspend")
    model.time_passes(90)
    model.take_back(2)
    model.claim_all(2)
    model.begin_handler(2, 0)
    model.commit_effect(2, 0)
    model.trouble(0, "suspend")
    model.commit_effect(0, 0)
    model.settle(0, False)
    assert not model.messages[0].done  # it is not his any more
    model.effect_happens_once()


@pytest.mark.parametrize(
    ("story", "mistake"),
    [(taken_from_the_living, WithoutHosts), (handled_again_after_being_cut_off, WithoutMarks)],
)
def test_model_sees_the_mistake_in_a_story_that_ends_well_without_it(
    story: object, mistake: type[ClaimModel]
) -> None:
    assert callable(story)
    story(ClaimModel())
    with pytest.raises(AssertionError):
        story(mistake())
