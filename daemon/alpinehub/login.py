"""Logins: passwords are checked in threads, and the result is cached.

Wrong passwords are limited by account and address. Guessing cannot lock out the hotel software of
the account: a password in the cache of right ones is never limited, and guesses from elsewhere do
not count for the network of the last contact, which the store has.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import os
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, partial
from hashlib import blake2b
from time import monotonic
from weakref import WeakKeyDictionary

from alpinehub.directory import directory_of
from alpinehub.models import Account
from alpinehub.passwords import dummy_password, verify_password
from cordata import Context, LogThrottle, Store

#: Seconds after its last use for which a verified password is not computed again. A changed
#: password, a disabled account, another hotel take effect at once: the key holds the stored hash,
#: the rest is read fresh. A day: this is also the way in while others guess.
REMEMBER_S = 86_400.0
#: The same for a wrong one: software that repeats it costs one computation in this time.
REMEMBER_WRONG_S = 10.0
#: Right passwords in the cache of one process, and as many wrong ones.
REMEMBER_MAX = 1024
#: scrypt computations at once in one process, 16 MiB each.
_AT_ONCE = 2
#: Passwords of one account from one address, or of all unknown names, that wait for their
#: computation: about a second's work.
MAX_WAITING = 16
#: (count, seconds): `count` wrong passwords at once, then one every `seconds`, in one process: of a
#: name from an address (the /64 of IPv6), from an address, and of a name from all addresses but
#: those from which it got in.
_OF_BOTH, _OF_ADDRESS, _OF_NAME = (10, 6.0), (30, 2.0), (100, 2.0)
#: Names and addresses that one process counts for.
_MAX_COUNTED = 10_000
#: Seconds in which one process reads the networks of the last contacts once, when it refuses a
#: password: guesses must not multiply the reads.
_READ_AGAIN_S = 60.0
#: Seconds in which one process reports guessed passwords of an account once.
_TELL_AGAIN_S = 600.0
_MAX_NAME_CHARS = 64


class TooManyLogins(Exception):
    """Too many passwords of this account wait to be checked, or were wrong."""

    def __init__(self, text: str, retry_after_s: float) -> None:
        super().__init__(text)
        #: One line for the client.
        self.text = text
        self.retry_after_s = max(1, math.ceil(retry_after_s))


class Guessing(TooManyLogins):
    """Too many passwords were wrong recently."""


class Allowance:
    """How often something may happen: `burst` times at once, then once in `every_s`; by key."""

    def __init__(self, burst: int, every_s: float) -> None:
        self._burst, self._every_s = burst, every_s
        #: Key -> monotonic time at which its events, at one in `every_s`, are used up.
        self._paid_at: OrderedDict[bytes, float] = OrderedDict()

    def wait_s(self, key: bytes, now: float) -> float:
        """How long until it may happen again; 0: now."""
        ahead = self._paid_at.get(key, now) - now
        return max(0.0, ahead - (self._burst - 1) * self._every_s)

    def count(self, key: bytes, now: float, times: int = 1) -> None:
        """Count an event; with `times` -1, take one back."""
        self._paid_at[key] = max(now, self._paid_at.get(key, now)) + times * self._every_s
        self._paid_at.move_to_end(key)
        while len(self._paid_at) > _MAX_COUNTED:
            self._paid_at.popitem(last=False)


class Guesses:
    """The wrong passwords of one process."""

    def __init__(self, digest: Callable[..., bytes]) -> None:
        self._digest = digest
        self._both = Allowance(*_OF_BOTH)
        self._address = Allowance(*_OF_ADDRESS)
        self._name = Allowance(*_OF_NAME)
        #: Names with an address from where they got in, here or as the store says.
        self._known: OrderedDict[bytes, None] = OrderedDict()
        #: Key: the cause of an alert.
        self.alert_throttle = LogThrottle(again_s=_TELL_AGAIN_S)

    def begin(self, name: str, address: str) -> None:
        """A password of a name is to be computed; it counts for both together until it was right,
        or was not computed. What many send from one address at once, as behind a proxy after a
        restart, is no guess yet. Raises: Guessing.
        """
        now = monotonic()
        wait_s = max(limit.wait_s(key, now) for limit, key in self._limits(name, address))
        if wait_s > 0:
            raise Guessing("too many wrong passwords; try again later", wait_s)
        self._both.count(self._digest(name, address), now)

    def was_wrong(self, name: str, address: str) -> None:
        """The password was a guess."""
        _, *others = self._limits(name, address)
        for limit, key in others:
            limit.count(key, monotonic())

    def was_not_computed(self, name: str, address: str) -> None:
        """The computation was interrupted."""
        self._both.count(self._digest(name, address), monotonic(), -1)

    def was_right(self, name: str, address: str) -> None:
        """The password was no guess."""
        self.was_not_computed(name, address)
        self.know(name, address)

    def know(self, name: str, address: str) -> None:
        """The name got in from the address, here or elsewhere."""
        known = self._digest(name, address)
        self._known[known] = None
        self._known.move_to_end(known)
        while len(self._known) > REMEMBER_MAX:
            self._known.popitem(last=False)

    def _limits(self, name: str, address: str) -> list[tuple[Allowance, bytes]]:
        both = self._digest(name, address)
        limits = [(self._both, both)]
        if address:
            limits.append((self._address, self._digest(address)))
        return limits if both in self._known else [*limits, (self._name, self._digest(name))]


class LoginQueue:
    """Passwords of one account, or of all unknown names, are computed one at a time."""

    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


class LoginCache:
    """Cache of results by a keyed hash, from which passwords cannot be guessed.

    Guessing fills only the queue of that account and address.
    """

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self.guesses = Guesses(self._digest)
        #: Monotonic time from which the networks of the last contacts may be read.
        self.read_again_at = 0.0
        #: Whether it was right -> its hashes with their end; wrong ones never displace right ones.
        self._answers: dict[bool, OrderedDict[bytes, float]] = {
            True: OrderedDict(),
            False: OrderedDict(),
        }
        self._asking: dict[bytes, asyncio.Lock] = {}
        self._queues: dict[str, LoginQueue] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def verify(
        self, name: str, password: str, *stored: str, queue: str, address: str = ""
    ) -> bool:
        """Whether the password is right, by one of what is stored for it. Callers at the same time
        share one computation.

        Raises: TooManyLogins.
        """
        digest = self._digest(name, password, *stored)
        right = self._cached(digest)
        if right is not None:
            return right
        lock = self._asking.setdefault(digest, asyncio.Lock())
        try:
            async with lock:
                right = self._cached(digest)
                if right is None:
                    right = await self._judge(name, password, stored, queue, address)
                    self._remember(digest, right)
        finally:
            if not lock.locked():
                self._asking.pop(digest, None)
        return right

    async def _judge(
        self, name: str, password: str, stored: tuple[str, ...], queue: str, address: str
    ) -> bool:
        guesses = self.guesses
        guesses.begin(name, address)
        try:
            right = await self._compute(password, stored, f"{queue} {address}")
        except BaseException:
            guesses.was_not_computed(name, address)
            raise
        (guesses.was_right if right else guesses.was_wrong)(name, address)
        return right

    async def _compute(self, password: str, stored: tuple[str, ...], name: str) -> bool:
        queue = self._queues.setdefault(name, LoginQueue())
        if queue.waiting >= MAX_WAITING:
            raise TooManyLogins("too many passwords wait to be checked; try again", 5)
        queue.waiting += 1
        try:
            async with queue.lock, self._turns:
                return await asyncio.to_thread(verify_password, password, *stored)
        finally:
            queue.waiting -= 1
            if not queue.waiting:
                del self._queues[name]

    def _cached(self, digest: bytes) -> bool | None:
        now = monotonic()
        for right, answers in self._answers.items():
            if now < answers.get(digest, 0.0):
                if right:
                    self._remember(digest, right)
                return right
        return None

    def _remember(self, digest: bytes, right: bool) -> None:
        answers = self._answers[right]
        answers[digest] = monotonic() + (REMEMBER_S if right else REMEMBER_WRONG_S)
        answers.move_to_end(digest)
        while len(answers) > REMEMBER_MAX:
            answers.popitem(last=False)

    def _digest(self, *texts: str) -> bytes:
        parts = (text.encode("utf-8", "surrogatepass") for text in texts)
        digest = blake2b(key=self._key, digest_size=32)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()


_caches: WeakKeyDictionary[Store, LoginCache] = WeakKeyDictionary()


@cache
def _nobody() -> str:
    """The stored text for unknown accounts: checking it costs the same."""
    return dummy_password()


def _before(ctx: Context, account: Account) -> str | None:
    """The password that a rotation left valid for a while."""
    until = account.before_until
    return account.password_before if until is not None and ctx.now_us() < until else None


def shown(name: str) -> str:
    """The name of an account for a log line: bounded, and printable whatever it is."""
    return ascii(name if len(name) <= _MAX_NAME_CHARS else name[:_MAX_NAME_CHARS] + "...")


def network_of(address: str) -> str:
    """The network of one client: an IPv4 address, or the /64 of an IPv6 address."""
    ip = _parse(address)
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(ip), 64), strict=False))
    return address if ip is None else str(ip)


def is_loopback(address: str) -> bool:
    """Whether it is a loopback address: that of all clients of a proxy that is not trusted."""
    ip = _parse(address)
    return ip is not None and ip.is_loopback


def _parse(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address, as one of IPv4 if it is mapped into IPv6; None: it is no address."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip


def counted_network(address: str) -> str:
    """The network by which wrong passwords are counted. "" for loopback addresses: a client may be
    behind a proxy that is not trusted.
    """
    return "" if is_loopback(address) else network_of(address)


async def _read_networks(ctx: Context, cache: LoginCache) -> bool:
    """Read from where the hotel software called last, before a restart or through another worker:
    guesses of others shall not keep it out. False: this was read a moment ago.
    """
    now = monotonic()
    if now < cache.read_again_at:
        return False
    cache.read_again_at = now + _READ_AGAIN_S
    try:
        rows = await ctx.store.read(lambda tx: tx.fetch_all("contact_networks", limit=REMEMBER_MAX))
    except BaseException:  # also if a client that guesses leaves
        cache.read_again_at = now
        raise
    for row in reversed(rows):  # the latest last: it is forgotten last
        cache.guesses.know(row["name"], row["network"])
    return True


def _alert(ctx: Context, cache: LoginCache, name: str, address: str, *, exists: bool) -> None:
    """Alert, but not at every guess. All unknown names are one cause."""
    cause = f"passwords-guessed:{name}" if exists else "passwords-guessed"
    if cache.guesses.alert_throttle.is_due(cause):
        ctx.alert(
            cause,
            f"too many wrong passwords for {'account' if exists else 'the unknown account'}"
            f" {shown(name)}, last from {address or 'a local socket'}: no more are checked for now",
            ids=[name] if exists else (),
        )


async def authenticate(
    ctx: Context, name: str, password: str, *, address: str = ""
) -> Account | None:
    """The account of a name, or None: unknown, disabled and wrong password look and cost the
    same.

    `address` is the client's, by which wrong passwords are counted. Raises: StoreUnavailable,
    TooManyLogins.
    """
    accounts = (await directory_of(ctx).snapshot()).accounts
    account: Account | None = accounts.get(name)
    stored = [account.password] if account is not None else [_nobody()]
    if account is not None and (before := _before(ctx, account)) is not None:
        stored.append(before)
    cache = _caches.get(ctx.store) or _caches.setdefault(ctx.store, LoginCache())
    queue = name if account is not None else ""
    counted = counted_network(address)
    verify = partial(cache.verify, name, password, *stored, queue=queue, address=counted)
    try:
        try:
            right = await verify()
        except Guessing:
            if not await _read_networks(ctx, cache):
                raise
            right = await verify()
    except Guessing:
        _alert(ctx, cache, name, address, exists=account is not None)
        raise
    if account is None or not right:
        return None
    return account
