"""Who may log in: passwords are checked off the loop, and the answer is remembered for a while."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from time import monotonic
from weakref import WeakKeyDictionary

from alpinehub.directory import directory_of
from alpinehub.party import Hotel, User
from alpinehub.passwords import hash_password, verify_password
from cordata import Context, Store

#: Seconds after its last use for which a verified password is not computed again. A changed
#: password, a disabled user, another hotel take effect at once: the key holds the stored hash, the
#: rest is read fresh.
REMEMBER_S = 3600.0
#: The same for a wrong one: hotel software that insists on it costs one computation in this time.
REMEMBER_WRONG_S = 10.0
#: Right answers one process remembers, and as many wrong ones.
REMEMBER_MAX = 1024
#: scrypt computations at once in one process, 16 MiB each.
_AT_ONCE = 2
#: Passwords of one user, or of all names that are nobody's, that wait for their computation: about
#: a second's work.
MAX_WAITING = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user who has proved who he is."""

    id: int
    name: str
    #: The hotels he may read, none of them disabled.
    hotels: tuple[Hotel, ...]

    def hotel(self, code: str | None, name: str | None = None) -> Hotel | None:
        """His hotel that is meant; None for one that is not his, and for one that does not exist.

        The code decides where it is given; a name must be that of one of his hotels only.
        """
        if code is not None:
            return next((hotel for hotel in self.hotels if hotel.code == code), None)
        named = [hotel for hotel in self.hotels if hotel.name == name]
        return named[0] if len(named) == 1 else None


class TooManyLogins(Exception):
    """So many passwords of this user wait to be checked that one more would wait too long."""


class Lane:
    """What one user, or everybody unknown together, may have computed: one password at a time."""

    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


class Memory:
    """Answers given lately, by keyed hash: neither passwords nor anything to guess them by.

    Whoever guesses passwords keeps the lane of that user busy, and with names that are nobody's one
    lane in all; the others still get every second turn. What is in no lane's queue costs nothing.
    """

    def __init__(self) -> None:
        self._key = os.urandom(32)
        #: Until when, by whether it was right: wrong ones are anybody's and push out no right one.
        self._answers: dict[bool, OrderedDict[bytes, float]] = {
            True: OrderedDict(),
            False: OrderedDict(),
        }
        self._asking: dict[bytes, asyncio.Lock] = {}
        self._lanes: dict[str, Lane] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def verify(self, name: str, password: str, stored: str, *, lane: str) -> bool:
        """Whether the password is right. Callers at the same time share one computation.

        Raises: TooManyLogins.
        """
        mark = self._mark(name, password, stored)
        right = self._remembered(mark)
        if right is not None:
            return right
        lock = self._asking.setdefault(mark, asyncio.Lock())
        try:
            async with lock:
                right = self._remembered(mark)
                if right is None:
                    right = await self._compute(password, stored, lane)
                    self._remember(mark, right)
        finally:
            if not lock.locked():
                self._asking.pop(mark, None)
        return right

    async def _compute(self, password: str, stored: str, name: str) -> bool:
        lane = self._lanes.setdefault(name, Lane())
        if lane.waiting >= MAX_WAITING:
            raise TooManyLogins
        lane.waiting += 1
        try:
            async with lane.lock, self._turns:
                return await asyncio.to_thread(verify_password, password, stored)
        finally:
            lane.waiting -= 1
            if not lane.waiting:
                del self._lanes[name]

    def _remembered(self, mark: bytes) -> bool | None:
        now = monotonic()
        for right, answers in self._answers.items():
            if now < answers.get(mark, 0.0):
                if right:
                    self._remember(mark, right)
                return right
        return None

    def _remember(self, mark: bytes, right: bool) -> None:
        answers = self._answers[right]
        answers[mark] = monotonic() + (REMEMBER_S if right else REMEMBER_WRONG_S)
        answers.move_to_end(mark)
        while len(answers) > REMEMBER_MAX:
            answers.popitem(last=False)

    def _mark(self, name: str, password: str, stored: str) -> bytes:
        parts = (text.encode("utf-8", "surrogatepass") for text in (name, password, stored))
        digest = blake2b(key=self._key, digest_size=32)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()


_memories: WeakKeyDictionary[Store, Memory] = WeakKeyDictionary()


@cache
def _nobody() -> str:
    """A hash that no password fits: what an unknown user is checked against, at the same cost."""
    return hash_password(os.urandom(16).hex())


def _before(ctx: Context, user: User) -> str | None:
    """The password that a rotation left valid for a while."""
    until = user.before_until
    return user.password_before if until is not None and ctx.now_us() < until else None


async def authenticate(ctx: Context, name: str, password: str) -> Account | None:
    """The account of a user, or None: unknown, disabled and wrong password look and cost the same.

    Raises: StoreUnavailable, TooManyLogins.
    """
    directory = directory_of(ctx)
    users = (directory.remembered or await directory.current()).users
    user: User | None = users.get(name)
    stored = user.password if user is not None else await asyncio.to_thread(_nobody)
    memory = _memories.get(ctx.store) or _memories.setdefault(ctx.store, Memory())
    lane = name if user is not None else ""
    right = await memory.verify(name, password, stored, lane=lane)
    if not right and user is not None and (before := _before(ctx, user)) is not None:
        right = await memory.verify(name, password, before, lane=lane)
    if user is None or not right:
        return None
    return Account(id=user.id, name=user.name, hotels=user.hotels)
