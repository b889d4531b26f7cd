"""Each user's state of each version, against a model of it: several users for a hotel, several
hotels for a user, in any order of what they, the sources and the operator do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.integration.alpinebits.hub import notif_report_rq, read_rq
from tests.integration.hub.guests import STAY, store, submission
from tests.integration.hub.material import Hub, forget_directory, open_hub
from tests.integration.hub.software import ACKNOWLEDGE, READ, send

from alpinehub import accounts
from alpinehub.hotels import NewHotel, add_hotel
from alpinehub.requests import actions
from alpinehub.reservations import ReservationData, Status
from alpinehub.sources import add_source
from cordata import Tx

pytestmark = pytest.mark.usefixtures("each_store")
HOTELS, USERS, RESERVATIONS, STEPS = ("A", "B"), ("u1", "u2", "u3"), 3, 150
#: Not chosen: each statement that was broken by hand shows with some of any ten.
SEEDS = range(10)
#: Nothing is said of a stay: from 2022-10 on only.
LEAD = ReservationData(status="request", email="eva@example.com", newsletter=True)
DATA = ReservationData(**STAY, email="eva@example.com")
OLD, NEW = "2018-10", "2024-10"
#: (account, hotel, everything or what waits): (ResStatus, id) of each.
Lists = dict[tuple[str, str, bool], list[tuple[str, str]]]
_GIVEN = re.compile(r'ResStatus="(\w+)"[^>]*><UniqueID Type="(\d+)" ID="(\w+)"')
BOOKED = msgspec.structs.replace(
    DATA, status="reservation", total=Decimal(1), currency="EUR", room_type="DZ", rate_plan="BAR"
)


@dataclass
class Row:
    """A version for a user."""

    kind: int
    waiting: bool = True
    #: Since it was last made to wait.
    sent: bool = False
    #: Ever.
    given: bool = False
    acked: bool = False
    withdrawn: bool = False


@dataclass
class Made:
    """A reservation."""

    hotel: str
    #: What its source says of it.
    data: ReservationData
    #: The status of each version.
    statuses: list[Status] = field(default_factory=list)
    #: From all, also those who come later.
    withdrawn: bool = False

    @property
    def newest(self) -> int:
        return len(self.statuses)

    @property
    def kind(self) -> int:
        return 15 if self.statuses[-1] == "cancelled" else 14


@dataclass
class Model:
    """What ought to be."""

    readers: dict[str, set[str]] = field(default_factory=lambda: {hotel: set() for hotel in HOTELS})
    made: dict[str, Made] = field(default_factory=dict)
    #: (reservation, user, version)
    rows: dict[tuple[str, str, int], Row] = field(default_factory=dict)

    def add_version(self, name: str, status: Status) -> None:
        made = self.made[name]
        made.statuses.append(status)
        made.withdrawn = False
        for (one, _, _), row in self.rows.items():
            row.waiting = row.waiting and one != name
        for user in self.readers[made.hotel]:
            self.rows[name, user, made.newest] = Row(made.kind)

    def given(self, user: str, name: str, before: int) -> Status | None:
        """What an account was given last before a version; None: nothing."""
        found = [
            version
            for (one, who, version), row in self.rows.items()
            if (one, who) == (name, user) and row.given and version < before
        ]
        return self.made[name].statuses[max(found) - 1] if found else None

    def is_needed(self, user: str, name: str) -> bool:
        """Whether the newest version is anything to an account."""
        made = self.made[name]
        return made.kind == 14 or self.given(user, name, made.newest) is not None

    def grant(self, user: str, hotel: str) -> None:
        self.readers[hotel].add(user)
        for name, made in self.made.items():
            newest = made.newest
            taken = any(r.acked for (n, _, v), r in self.rows.items() if (n, v) == (name, newest))
            had = self.given(user, name, newest) is not None
            if made.hotel == hotel and not made.withdrawn:
                if had or (made.kind == 14 and not taken):
                    self.rows.setdefault((name, user, newest), Row(made.kind))

    def listed(self, user: str, hotel: str, everything: bool) -> list[tuple[str, str]]:
        """ResStatus and name of each that a poll lists."""
        found = []
        for name, made in sorted(self.made.items()):
            row = self.rows.get((name, user, made.newest))
            waits = row is not None and row.waiting
            open_ = not made.withdrawn or self.given(user, name, made.newest + 1) is not None
            wanted = waits or (everything and open_ and not (row is not None and row.withdrawn))
            if made.hotel == hotel and wanted and self.is_needed(user, name):
                found.append((self.res_status(user, name), name))
        return found

    def read(
        self, user: str, hotel: str, version: str, everything: bool
    ) -> list[tuple[str, str, str]]:
        given = []
        for res_status, name in self.listed(user, hotel, everything):
            made = self.made[name]
            if not (made.data is LEAD and made.kind == 14 and version == OLD):
                row = self.rows.setdefault((name, user, made.newest), Row(made.kind))
                row.sent = row.given = True
                given.append((res_status, str(made.kind), name))
        return given

    def res_status(self, user: str, name: str) -> str:
        made = self.made[name]
        if made.statuses[-1] == "request":
            return "Requested"
        if made.statuses[-1] == "cancelled":
            return "Cancelled"
        before = self.given(user, name, made.newest)
        return "Modify" if before == "reservation" else "Reserved"

    def sent(self, user: str, name: str, kind: int | None) -> Row | None:
        """The newest version of a type that was sent to a user who reads the hotel."""
        if user not in self.readers[self.made[name].hotel]:
            return None
        found = [
            (version, row)
            for (one, who, version), row in self.rows.items()
            if (one, who) == (name, user) and row.sent and kind in (None, row.kind)
        ]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def take(self, user: str, name: str, kind: int | None) -> None:
        if (row := self.sent(user, name, kind)) is not None:
            row.acked, row.waiting = True, False

    def newest(self, name: str, user: str | None) -> Iterator[tuple[str, Row | None]]:
        made = self.made[name]
        for who in sorted(self.readers[made.hotel]):
            if user in (None, who):
                yield who, self.rows.get((name, who, made.newest))


@dataclass
class Play:
    """The real thing beside its model, and what was done to both."""

    hub: Hub
    random: Random
    model: Model = field(default_factory=Model)
    log: list[str] = field(default_factory=list)

    async def step(self) -> None:
        moves = [self.submit] * 3 + [self.poll] * 4 + [self.answer] * 5 + [self.cancel]
        moves += [self.grant_or_revoke] * 2 + [self.resend] * 2 + [self.withdraw] * 3
        await self.random.choice(moves)()
        assert await self.stored() == self.expected(), "\n".join(self.log[-20:])
        assert await self.listed() == self.to_be_listed(), "\n".join(self.log[-20:])
        withdrawn = {name for name, made in self.model.made.items() if made.withdrawn}
        assert await self.withdrawn() == withdrawn, "\n".join(self.log[-20:])

    async def submit(self) -> None:
        """A new request, a change, or a cancellation by its source."""
        new = [None] if len(self.model.made) < RESERVATIONS else []
        known = self.random.choice([*new, *self.model.made])
        number = len(self.log)
        if known is None:
            hotel, data = self.random.choice(HOTELS), self.random.choice((LEAD, DATA, BOOKED))
            self.log.append(f"new in {hotel}: {data.status} lead={data is LEAD}")
            name = await self.store(hotel, data, f"n-{number}")
            self.model.made[name] = Made(hotel, data)
            self.model.add_version(name, data.status)
            return
        made = self.model.made[known]
        [row] = await self.hub.rows(f"SELECT external_id FROM reservation WHERE id = '{known}'")
        changed: dict[str, Any] = {"message": f"step {number}"}
        if self.random.random() < 0.35:
            changed["status"] = "cancelled"
        said = msgspec.structs.replace(made.data, **changed)
        self.log.append(f"change {known} to {said.status}")
        await self.store(made.hotel, said, row["external_id"])
        self.model.add_version(known, said.status)

    async def store(self, hotel: str, data: ReservationData, external_id: str) -> str:
        self.hub.harness.advance(milliseconds=1)
        made = await submission(self.hub, data, hotel=hotel, external_id=external_id)
        return (await store(self.hub, made)).reservation_id

    async def poll(self) -> None:
        hotel = self.random.choice(HOTELS)
        user = self.random.choice([*sorted(self.model.readers[hotel]) * 4, *USERS])
        version, everything = self.random.choice((OLD, NEW)), self.random.random() < 0.4
        self.log.append(f"{user} reads {hotel} in {version} everything={everything}")
        document = read_rq(hotel, "2020-01-01T00:00:00Z" if everything else "")
        answer = await send(self.hub, READ, document, version, user)
        assert answer.status == 200
        if user not in self.model.readers[hotel]:
            assert b'Code="392"' in answer.body
            return
        given = _GIVEN.findall(answer.body.decode())
        assert given == self.model.read(user, hotel, version, everything), "\n".join(self.log[-20:])

    async def answer(self) -> None:
        """Acknowledgements and refusals of anything, his or not, known or not."""
        user, some = self.random.choice(USERS), [*self.model.made]
        self.random.shuffle(some)
        taken = [(self.random.choice((14, 14, 15)), name) for name in some[:2]]
        refused = {name: "no room" for name in some[2:3]}
        self.log.append(f"{user} takes {taken} and refuses {list(refused)}")
        known = {name for kind, name in taken if self.model.sent(user, name, kind)}
        known |= {name for name in refused if self.model.sent(user, name, None)}
        document = notif_report_rq(((14, "nothing"), *taken), refused)
        answer = await send(self.hub, ACKNOWLEDGE, document, NEW, user)
        warned = set(re.findall(r'RecordID="(\w+)"', answer.body.decode()))
        assert warned == {"nothing", *(name for _, name in taken), *refused} - known
        for kind, name in taken:
            self.model.take(user, name, kind)
        for name in refused:
            self.model.take(user, name, None)

    async def grant_or_revoke(self) -> None:
        user, hotel = self.random.choice(USERS), self.random.choice(HOTELS)
        if user in self.model.readers[hotel]:
            self.log.append(f"revoke {hotel} from {user}")
            await accounts.revoke(self.hub.ctx.store, user, hotel)
            self.model.readers[hotel].discard(user)
        else:
            self.log.append(f"grant {hotel} to {user}")
            await accounts.grant(self.hub.ctx.store, user, hotel)
            self.model.grant(user, hotel)
        forget_directory(self.hub.ctx)

    def chosen(self) -> tuple[str, str | None] | None:
        """A request, and a user who reads its hotel or all of them."""
        if not self.model.made:
            return None
        name = self.random.choice([*self.model.made])
        readers = sorted(self.model.readers[self.model.made[name].hotel])
        one_of_them = self.random.choice(readers) if readers else None
        return name, self.random.choice((None, one_of_them))

    async def resend(self) -> None:
        if (chosen := self.chosen()) is None:
            return
        name, user = chosen
        self.log.append(f"resend {name} to {user}")
        done = await actions.resend(self.hub.ctx.store, name, account=user, by="test")
        made = self.model.made[name]
        made.withdrawn = made.withdrawn and user is not None
        again = []
        for who, row in self.model.newest(name, user):
            if (row is None or not row.waiting) and self.model.is_needed(who, name):
                given = row is not None and row.given
                self.model.rows[name, who, made.newest] = Row(made.kind, given=given)
                again.append(who)
        assert done.accounts == again

    async def withdraw(self) -> None:
        if (chosen := self.chosen()) is None:
            return
        name, user = chosen
        self.log.append(f"withdraw {name} from {user}")
        done = await actions.cancel(self.hub.ctx.store, name, account=user, by="test")
        made = self.model.made[name]
        made.withdrawn = made.withdrawn or user is None
        gone = []
        for (one, who, version), row in self.model.rows.items():
            if (one, version) == (name, made.newest) and user in (None, who) and row.waiting:
                row.waiting, row.withdrawn = False, True
                gone.append(who)
        assert done.accounts == sorted(gone)

    async def cancel(self) -> None:
        open_ones = [name for name, made in self.model.made.items() if made.kind == 14]
        if not open_ones:
            return
        name = self.random.choice(open_ones)
        self.log.append(f"cancel {name} at its hotel")
        done = await actions.cancel_at_hotel(self.hub.ctx.store, name, by="test")
        self.model.add_version(name, "cancelled")
        readers = sorted(self.model.readers[self.model.made[name].hotel])
        assert done.accounts == [who for who in readers if self.model.is_needed(who, name)]

    async def stored(self) -> dict[tuple[str, str, int], Row]:
        rows = await self.hub.rows(
            "SELECT d.*, u.name FROM delivery d JOIN account u ON u.id = d.account_id"
        )
        return {
            (row["reservation_id"], row["name"], row["version"]): Row(
                kind=row["unique_id_type"],
                waiting=row["waiting"] == 1,
                sent=row["sent_at"] is not None,
                given=row["ever_sent"] == 1,
                acked=row["acked_at"] is not None,
                withdrawn=row["cancelled_at"] is not None,
            )
            for row in rows
        }

    def expected(self) -> dict[tuple[str, str, int], Row]:
        return self.model.rows

    async def listed(self) -> Lists:
        """What a poll of each account would list now: the poll that shows a mistake may never come,
        or too late.
        """
        lists: Lists = {}
        grants = await self.hub.rows(
            "SELECT a.id AS account_id, h.id AS hotel_id, a.name, h.code FROM account_hotel g"
            " JOIN account a ON a.id = g.account_id JOIN hotel h ON h.id = g.hotel_id"
        )

        async def look(tx: Tx) -> None:
            for row in grants:
                where: dict[str, Any] = {key: row[key] for key in ("account_id", "hotel_id")}
                where |= {"after_id": "", "limit": 100}
                waiting = await tx.fetch_all("delivery_list_waiting", **where)
                where |= {"after_at": 0, "today": "2020-01-01"}
                since = await tx.fetch_all("delivery_list_since", **where)
                for everything, found in ((False, waiting), (True, since)):
                    names = [(one["res_status"], one["reservation_id"]) for one in found]
                    lists[row["name"], row["code"], everything] = names

        await self.hub.ctx.store.read(look)
        return lists

    def to_be_listed(self) -> Lists:
        return {
            (user, hotel, everything): self.model.listed(user, hotel, everything)
            for hotel, users in self.model.readers.items()
            for user in users
            for everything in (False, True)
        }

    async def withdrawn(self) -> set[str]:
        """The reservations that are withdrawn from all accounts."""
        rows = await self.hub.rows("SELECT id FROM reservation WHERE withdrawn_at IS NOT NULL")
        return {row["id"] for row in rows}


@pytest.mark.parametrize("seed", SEEDS)
async def test_state_of_each_account_is_that_of_the_model(tmp_path: Path, seed: int) -> None:
    async with open_hub(tmp_path, seed=False) as hub:
        store = hub.ctx.store
        for hotel in HOTELS:
            await add_hotel(store, NewHotel(code=hotel, name=f"Hotel {hotel}"))
            await add_source(hub.ctx, hotel, "generic", "web", f"secret-of-{hotel}")
        for user in USERS:
            await accounts.add_account(store, user, "demo", [])
        play = Play(hub, Random(seed))
        for user, hotel in (("u1", "A"), ("u1", "B"), ("u2", "A")):
            await accounts.grant(store, user, hotel)
            play.model.grant(user, hotel)
        forget_directory(hub.ctx)
        for _ in range(STEPS):
            await play.step()
        # Whatever happened: what he has not taken comes with his next poll, and nothing else.
        for user in USERS:
            for hotel in HOTELS:
                if user not in play.model.readers[hotel]:
                    continue
                given = _GIVEN.findall(
                    (await send(hub, READ, read_rq(hotel), NEW, user)).body.decode()
                )
                assert given == play.model.read(user, hotel, NEW, everything=False)
        events = await hub.rows(
            "SELECT type, payload, count(*) AS times FROM event WHERE type LIKE '%delivered' "
            "GROUP BY type, payload"
        )
        resent = await hub.one("SELECT count(*) FROM reservation_history WHERE event = 'resent'")
        assert sum(row["times"] - 1 for row in events) <= resent
