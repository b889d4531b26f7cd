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

from alpinehub.directory import Hotel, User, directory_of
from alpinehub.passwords import hash_password, verify_password
from cordata import Context, Store

#: Seconds for which a verified password is not computed again. A changed password, a disabled
#: user, another hotel take effect at once: the key holds the stored hash, the rest is read fresh.
REMEMBER_S = 600.0
#: The same for a wrong one: hotel software that insists on it costs one computation in this time.
REMEMBER_WRONG_S = 10.0
#: Answers one process remembers.
REMEMBER_MAX = 1024
#: scrypt computations at once in one process, 16 MiB each.
_AT_ONCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user who has proved who he is."""

    id: int
    name: str
    #: The hotels he may read, none of them disabled.
    hotels: tuple[Hotel, ...]

    def hotel(self, code: str) -> Hotel | None:
        """His hotel of that code; None for one that is not his, and for one that does not exist."""
        return next((hotel for hotel in self.hotels if hotel.code == code), None)


class Memory:
    """Answers given lately, by keyed hash: neither passwords nor anything to guess them by."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._answers: OrderedDict[bytes, tuple[float, bool]] = OrderedDict()
        self._asking: dict[bytes, asyncio.Lock] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def verify(self, name: str, password: str, stored: str) -> bool:
        """Whether the password is right. Callers at the same time share one computation."""
        mark = self._mark(name, password, stored)
        right = self._remembered(mark)
        if right is not None:
            return right
        lock = self._asking.setdefault(mark, asyncio.Lock())
        try:
            async with lock:
                right = self._remembered(mark)
                if right is None:
                    async with self._turns:
                        right = await asyncio.to_thread(verify_password, password, stored)
                    self._remember(mark, right)
        finally:
            if not lock.locked():
                self._asking.pop(mark, None)
        return right

    def _remembered(self, mark: bytes) -> bool | None:
        until, right = self._answers.get(mark, (0.0, False))
        return right if monotonic() < until else None

    def _remember(self, mark: bytes, right: bool) -> None:
        until = monotonic() + (REMEMBER_S if right else REMEMBER_WRONG_S)
        self._answers[mark] = (until, right)
        self._answers.move_to_end(mark)
        while len(self._answers) > REMEMBER_MAX:
            self._answers.popitem(last=False)

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


async def authenticate(ctx: Context, name: str, password: str) -> Account | None:
    """The account of a user, or None: unknown, disabled and wrong password look and cost the same.

    Raises: StoreUnavailable.
    """
    directory = directory_of(ctx)
    users = (directory.remembered or await directory.current()).users
    user: User | None = users.get(name)
    stored = user.password if user is not None else await asyncio.to_thread(_nobody)
    memory = _memories.get(ctx.store) or _memories.setdefault(ctx.store, Memory())
    right = await memory.verify(name, password, stored)
    if user is None or not right:
        return None
    return Account(id=user.id, name=user.name, hotels=user.hotels)
