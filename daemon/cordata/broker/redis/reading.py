"""One process as a consumer: it reads what is there; an idle group waits in a blocking read.

    exchange: read what is there, most urgent level first ──enough──> hand it out
                                                          └──too little──> hand it out, and arm
    sentry:   blocks until something is there ──> arrived ──ring──> exchange

While a sentry waits nothing else reads the same streams, so a worker never takes more than it
wants, and Redis gives a new entry to the worker that has waited longest. One that has no room for
backfill passes it by; there is room again later, and then it is read beside the sentry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cordata import clock
from cordata.broker.message import Want
from cordata.broker.redis.acking import SURE_SHARE, acks_of, unacknowledged
from cordata.broker.redis.complaint import WRONG_TYPE, Complaints
from cordata.broker.redis.connection import Command, Connection, Refused
from cordata.broker.redis.hands import Hands, Taken, stray, taken_of
from cordata.broker.redis.naming import LEVELS, Keys, Stream, position_of
from cordata.broker.redis.registry import Knowledge
from cordata.core.outbox import BACKFILL, LIVE
from cordata.log import logger

if TYPE_CHECKING:
    from cordata.broker.redis.sentry import Sentry

log = logger("cordata.redis")

#: Entries of one read of what is in this consumer's name already.
_PAGE = 500


class Consumer:
    """What one owner reads, by group."""

    def __init__(self, name: str, keys: Keys, *, reliever: str, claim_timeout_s: float) -> None:
        """`reliever`: in whose name this process settles what another one left."""
        self.name = name
        #: Read by this process; else it is another one's, and only what it left is settled.
        self.reads = False
        self.hands = Hands()
        #: Read, and neither handed out nor looked at.
        self.arrived: dict[str, list[Taken]] = {}
        #: The same, of those that may have been handled before.
        self.doubtful: list[Taken] = []
        #: Handled, but not in this consumer's name any more: somebody else may handle it, too.
        self.unsettled: list[Taken] = []
        self.sentries: dict[str, Sentry] = {}
        #: Groups that Redis does not know though it should.
        self.misses: set[str] = set()
        #: An answer was lost, and what it brought is in this consumer's name: see `adopt`.
        self.missed_answer = False
        #: Everything in hand was read or renewed since then: monotonic.
        self.held_since = 0.0
        self._sure_s = SURE_SHARE * claim_timeout_s
        #: No answer to an acknowledgement was lost: what others have acknowledged they handled.
        self._certain = True
        self._reliever = reliever
        self._complaints = Complaints()
        self._keys = keys

    @property
    def holder(self) -> str:
        """In whose name is what this process settles."""
        return self.name if self.reads else self._reliever

    @property
    def sure(self) -> bool:
        """Whether nobody can have taken over what is in hand."""
        return self.reads and clock.monotonic() < self.held_since + self._sure_s

    async def exchange(
        self, connection: Connection, wanted: Mapping[str, Want], known: Knowledge, timeout_s: float
    ) -> None:
        """Acknowledge what is done and read what is wanted, backfill if nothing else is there.

        What comes is in `arrived` or `doubtful`. Raises: BrokerUnavailable.
        """
        streams = {group: known.streams_of(group) for group in wanted}
        left = {group: want.live for group, want in wanted.items()}
        for level in LEVELS[:-1]:
            await self._round(connection, _at(streams, level), left, known, timeout_s)
        if all(left[group] == want.live for group, want in wanted.items()):
            left = {group: want.backfill for group, want in wanted.items()}
            await self._round(connection, _at(streams, BACKFILL), left, known, timeout_s)
        if self.hands.owes:
            await self._call(connection, (), timeout_s)

    async def _round(
        self,
        connection: Connection,
        streams: Sequence[tuple[str, Stream]],
        left: dict[str, int],
        known: Knowledge,
        timeout_s: float,
    ) -> None:
        """Read at most `left` entries of each, if there is anything to read."""
        reads = [(group, stream) for group, stream in streams if left[group] > 0]
        if not reads:
            return
        self.reads = True
        commands = [self._read(group, stream, left[group]) for group, stream in reads]
        begun = clock.monotonic()
        try:
            replies = await self._call(connection, commands, timeout_s)
        except BaseException:
            self.missed_answer = True
            raise
        for (group, _), reply in zip(reads, replies, strict=True):
            left[group] -= self.take(group, reply, connection, known, since=begun)

    async def _call(
        self, connection: Connection, commands: Sequence[Command], timeout_s: float
    ) -> list[Any]:
        """Acknowledge what is done, and send commands. Returns their answers."""
        done = self.hands.done()
        acks = acks_of(self.hands, done, self.holder, sure=self.sure)
        words = [ack.command for ack in acks]
        try:
            replies = await connection.call(*words, *commands, timeout_s=timeout_s)
        except BaseException:
            self.hands.put_back(done)
            self._certain = False
            raise
        for ack, reply in zip(acks, replies, strict=False):
            left, others = unacknowledged(ack, reply)
            handled = self.hands.acknowledged(ack.pile)
            if self.reads:  # what we moved to the store may be due there
                lost = set(map(id, left))
                self.unsettled += [taken for taken in handled if id(taken) in lost]
            elif self._certain:
                self.unsettled += others  # its owner was only slow, and has handled it after all
        return replies[len(acks) :]

    def _read(self, group: str, stream: Stream, count: int) -> Command:
        key = self._keys.of(stream)
        return ("XREADGROUP", "GROUP", group, self.name, "COUNT", count, "STREAMS", key, ">")

    def take(
        self, group: str, reply: Any, connection: Connection, known: Knowledge, *, since: float
    ) -> int:
        """Keep what a read brought that was sent at `since`. Returns the number of entries."""
        if isinstance(reply, Refused):
            if reply.kind == "NOGROUP":
                self.misses.add(group)
            else:
                self._complaints.refused(f"{group} its events", reply)
            return 0
        if self.hands.empty:
            self.held_since = since
        unsure = connection.run_id != known.run_id
        count = 0
        for raw_key, entries in reply or ():
            count += len(entries)
            self._keep(group, raw_key.decode(), entries, known, unsure=unsure)
        return count

    def _keep(
        self, group: str, key: str, entries: list[Any], known: Knowledge, *, unsure: bool
    ) -> None:
        stream = self._keys.stream_of(key)
        floor = known.floors.get(stream, 0)
        arrived = self.arrived.setdefault(group, [])
        for entry_id, fields in entries:
            taken = _taken(group, stream, key, entry_id, fields)
            if taken is None:
                self.hands.put_back([stray(group, stream, key, entry_id)])
            elif not self.hands.has(taken):
                self.hands.add(taken)
                if floor and position_of(entry_id) > floor:
                    floor = 0  # those that follow came later
                (self.doubtful if unsure or floor or taken.again else arrived).append(taken)

    async def adopt(
        self, connection: Connection, groups: Iterable[str], known: Knowledge, timeout_s: float
    ) -> bool:
        """Take what is in this consumer's name and not in its hands: the answer was lost.

        It is in `doubtful` then. False: some could not be read. Raises: BrokerUnavailable.
        """
        complete = True
        for group in groups:
            for stream in known.streams_of(group):
                key, after = self._keys.of(stream), "0"
                head = ("XREADGROUP", "GROUP", group, self.name, "COUNT", _PAGE, "STREAMS", key)
                while True:
                    begun = clock.monotonic()
                    (reply,) = await connection.call((*head, after), timeout_s=timeout_s)
                    if isinstance(reply, Refused):  # without a group there is nothing to take
                        complete = complete and reply.kind in ("NOGROUP", WRONG_TYPE)
                        break
                    if not reply or not reply[0][1]:
                        break
                    nothing = Knowledge()  # so all of it is doubtful
                    self.take(group, reply, connection, nothing, since=begun)
                    after = reply[0][1][-1][0].decode()
        return complete

    def collect(self, wanted: Mapping[str, Want]) -> list[Taken]:
        """What has arrived for these groups. It may be more than is wanted, seldom and by little:
        a blocking read of several streams brings that many of each.
        """
        return [taken for group in wanted for taken in self.arrived.pop(group, ())]

    def unread(self) -> list[Taken]:
        """Everything that was read and neither handed out nor looked at."""
        found = [taken for arrived in self.arrived.values() for taken in arrived] + self.doubtful
        self.arrived, self.doubtful = {}, []
        return found

    def arm(self, group: str, want: Want, known: Knowledge) -> None:
        """Let the group's sentry wait for the next entries, if it has one."""
        if (sentry := self.sentries.get(group)) is not None:
            sentry.arm(self._keys_for(group, want, known), want)

    def arm_anew(self, known: Knowledge) -> list[int]:
        """Sentries that wait for fewer streams than there are now: their connections."""
        outdated = []
        for group, sentry in self.sentries.items():
            keys = self._keys_for(group, sentry.want, known)
            if sentry.armed and sentry.keys != keys:
                sentry.arm(keys, sentry.want)
                outdated.append(sentry.client_id)
        return outdated

    def _keys_for(self, group: str, want: Want, known: Knowledge) -> list[str]:
        streams = known.streams_of(group)
        return [self._keys.of(s) for s in streams if want.backfill or s.level != BACKFILL]

    def widen(self, group: str, count: int, known: Knowledge) -> list[int]:
        """The group's sentry, which passes its backfill by, is to wait for `count` of that, too.

        Returns the connections that have to begin anew for it.
        """
        if not self._waits(group):
            return []
        sentry = self.sentries[group]
        want = sentry.want._replace(backfill=count)
        sentry.arm(self._keys_for(group, want, known), want)
        return [sentry.client_id]

    def reads_of(self, wanted: Mapping[str, Want], known: Knowledge) -> dict[str, Want]:
        """What to read of what is wanted: a sentry that waits reads for itself."""
        reads: dict[str, Want] = {}
        for group, want in wanted.items():
            if not self._waits(group):
                there = self.there(group)
                live, backfill = want.live - there[LIVE], want.backfill - there[BACKFILL]
                reads[group] = Want(max(live, 0), max(backfill, 0))
            elif want.backfill and self.passes_by(group, known):
                reads[group] = Want(live=0, backfill=want.backfill)
        return reads

    def watches(self, group: str, known: Knowledge) -> bool:
        """Whether the group's sentry waits, for all that there may be."""
        return self._waits(group) and not self.passes_by(group, known)

    def passes_by(self, group: str, known: Knowledge) -> bool:
        """Whether the sentry waits, but not for the backfill: there was no room for that."""
        if not self._waits(group) or self.sentries[group].want.backfill:
            return False
        return any(stream.level == BACKFILL for stream in known.streams_of(group))

    def _waits(self, group: str) -> bool:
        sentry = self.sentries.get(group)
        return sentry is not None and sentry.armed

    def there(self, group: str) -> Counter[str]:
        """Lane -> what has arrived of it."""
        return Counter(taken.message.lane for taken in self.arrived.get(group, ()))


def _taken(group: str, stream: Stream, key: str, entry_id: bytes, fields: Any) -> Taken | None:
    try:
        return taken_of(group, stream, key, entry_id, fields or [])
    except ValueError as error:  # put there by somebody else, or deleted while it was pending
        log.error("%s: entry %s of %s: %s", group, entry_id.decode(), key, error)
        return None


def _at(streams: Mapping[str, list[Stream]], level: str) -> list[tuple[str, Stream]]:
    return [(group, one) for group, own in streams.items() for one in own if one.level == level]
