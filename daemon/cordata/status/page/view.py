"""What the page shows: a snapshot and three lists, as parts that are rendered and sent by id."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordata import clock
from cordata.broker.inspection import DeadLetter, DeadLetters, Filter
from cordata.config import Config
from cordata.context import Context
from cordata.errors import CordataError
from cordata.metrics.backlog import shown
from cordata.status.collect import LIMIT_S, collect
from cordata.status.judge import Reason, State, judge, worst
from cordata.status.snapshot import Part, Snapshot
from cordata.status.tables import Table, lines, milliseconds, rate, tables
from cordata.store import Row, Tx
from cordata.terminal import span

if TYPE_CHECKING:
    from jinja2 import Environment

#: A snapshot is collected when the last one is older, however many look.
KEPT_S = 2.0
#: Rows of a list, and of a table.
_LIST, _TABLE = 20, 100
_DAY_US = 86_400_000_000
#: Ids of the page's own parts, in their order. They are not those that reasons are about.
PARTS = (
    *("verdict", "tiles", "dead-letters", "alerts", "groups", "http", "mails", "jobs", "timers"),
    *("pool", "units", "processes", "store"),
)


#: Heads of the command's tables that the page does not just capitalize.
_HEADS = {"HTTP": "Worker", "REQ/S": "Requests/s", "PID": "PID"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """The button of a row."""

    path: str
    label: str
    #: What it is done to, for those who hear the button without its row.
    to: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of a table."""

    cells: Sequence[object]
    action: Action | None = None
    #: Where the first cell leads to.
    href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table with its title."""

    title: str
    heads: Sequence[str]
    lines: Sequence[Line]
    #: A sentence below the title.
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One number that says most about a part."""

    title: str
    value: str
    detail: str
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything there is to show at one moment."""

    snapshot: Snapshot
    at: datetime
    #: Whether units were looked for.
    with_units: bool
    letters: Sequence[DeadLetter] = ()
    alerts: Sequence[Row] = ()
    mails: Sequence[Row] = ()
    reasons: Sequence[Reason] = field(default_factory=list)

    @property
    def state(self) -> State:
        """healthy, degraded, down."""
        return worst(self.reasons)


class Collector:
    """Collects for all who look at this process's pages."""

    def __init__(self, ctx: Context, config: Config, *, with_units: bool) -> None:
        self._ctx, self._config, self._with_units = ctx, config, with_units
        self._lock = asyncio.Lock()
        self._view: View | None = None
        self._collected_at = float("-inf")

    async def latest(self, *, fresh: bool = False) -> View:
        """At most KEPT_S old. `fresh`: of now, since this browser has just changed something."""
        async with self._lock:
            if fresh or self._view is None or clock.monotonic() - self._collected_at >= KEPT_S:
                self._view = await self._collect()
                self._collected_at = clock.monotonic()
            return self._view

    async def _collect(self) -> View:
        snapshot = await collect(self._config, with_units=self._with_units, ctx=self._ctx)
        lists: dict[str, Any] = {}
        if "store" not in snapshot.errors:
            try:
                async with asyncio.timeout(LIMIT_S):
                    page = await DeadLetters(self._ctx.store).page(Filter(), limit=_LIST)
                    lists = {"letters": page.items, **await self._ctx.store.read(_lists)}
            except (CordataError, TimeoutError):  # the next snapshot says why
                pass
        return View(
            snapshot=snapshot,
            at=clock.now(),
            with_units=self._with_units,
            reasons=judge(snapshot),
            **lists,
        )


async def _lists(tx: Tx) -> dict[str, Sequence[Row]]:
    failed = await tx.fetch_all("status.failed_mails", since=tx.now_us - _DAY_US, limit=_LIST)
    waiting = await tx.fetch_all("status.waiting_mails", limit=_LIST)
    return {"alerts": await tx.fetch_all("alert.list", limit=_LIST), "mails": [*failed, *waiting]}


def render_parts(view: View) -> dict[str, str]:
    """The HTML of each part by its id; "": it has nothing to show."""
    templates = environment()
    made = {
        "verdict": templates.get_template("verdict.html.j2").render(view=view),
        "tiles": templates.get_template("tiles.html.j2").render(tiles=_tiles(view)),
    }
    section = templates.get_template("section.html.j2")
    for part, one in _sections(view).items():
        made[part] = section.render(part=part, section=one)
    return {part: made.get(part, "").strip() for part in PARTS}


def _sections(view: View) -> dict[str, Section]:
    snapshot = view.snapshot
    found = {table.part: _of_table(table) for table in tables(snapshot)}
    found["dead-letters"] = _letters(view.letters)
    found["alerts"] = _alerts(view.alerts)
    found["mails"] = _mails(view.mails)
    rest = [Line(cells=item) for item in lines(snapshot).items()]
    found["store"] = Section(title="Store and host", heads=("What", "State"), lines=rest)
    if view.with_units and not snapshot.systemd:
        note = "systemd does not answer a worker here: `cordata status` shows the units."
        found["units"] = Section(title="Units", heads=(), lines=(), note=note)
    return found


def _of_table(table: Table) -> Section:
    more = len(table.rows) - _TABLE
    return Section(
        title=table.title,
        heads=[_HEADS.get(head, head.capitalize()) for head in table.heads],
        lines=[Line(cells=row) for row in table.rows[:_TABLE]],
        note=f"{more} more: `cordata status` shows all." if more > 0 else "",
    )


def _letters(letters: Sequence[DeadLetter]) -> Section:
    return Section(
        title="Dead letters",
        heads=("Event", "Group", "Type", "Attempts", "Given up", "Error"),
        lines=[
            Line(
                cells=(
                    one.event_id,
                    one.group,
                    one.type,
                    one.attempts,
                    moment(one.dead_at),
                    one.error,
                ),
                href=f"/trace?id={one.event_id}",
                action=Action(
                    path="/replay",
                    label="Replay",
                    to=f"{one.event_id} in {one.group}",
                    fields={"event": one.event_id, "group": one.group},
                ),
            )
            for one in letters
        ],
        note=_listed(letters, "cordata dlq list"),
    )


def _alerts(alerts: Sequence[Row]) -> Section:
    return Section(
        title="Alerts",
        heads=("Alert", "Id", "Count", "Not mailed", "Last", "Where"),
        lines=[
            Line(
                cells=(
                    *(one["title"], one["fingerprint"], one["count"], one["pending"]),
                    *(moment(one["last_at"]), one["place"]),
                ),
                action=Action(
                    path="/acknowledge",
                    label="Acknowledge",
                    to=one["title"],
                    fields={"alert": one["fingerprint"]},
                ),
            )
            for one in alerts
        ],
        note=_listed(alerts, "cordata alerts list"),
    )


def _mails(mails: Sequence[Row]) -> Section:
    return Section(
        title="Mails that wait or failed",
        heads=("Mail", "State", "Attempts", "Written", "Next attempt", "Error"),
        lines=[
            Line(
                cells=(
                    *(one["id"], one["state"], one["attempts"], moment(one["created_at"])),
                    *(moment(one["next_at"]), one["last_error"]),
                ),
                action=Action(
                    path="/retry",
                    label="Retry",
                    to=f"mail {one['id']}",
                    fields={"mail": one["id"]},
                ),
            )
            for one in mails
        ],
        note=_listed(mails, "cordata mail list"),
    )


def _listed(found: Sequence[object], command: str) -> str:
    if not found:
        return "None."
    return f"The first {len(found)}: `{command}` shows all." if len(found) >= _LIST else ""


def _tiles(view: View) -> list[Tile]:
    snapshot = view.snapshot

    def tile(title: str, value: str, detail: str, *parts: Part) -> Tile:
        state = worst([reason for reason in view.reasons if reason.part in parts])
        return Tile(title=title, value=value, detail=detail, state=state)

    workers = [unit.state for unit in snapshot.units if unit.unit.startswith("worker@")]
    running = sum(state in ("active", "reloading") for state in workers)
    primary, groups, mail = snapshot.primary, snapshot.groups, snapshot.mail
    leads = primary is not None and primary.is_held
    p99 = [one.p99_ms for one in snapshot.http if one.p99_ms is not None]
    errors = sum(one.errors_per_s for one in snapshot.http)
    oldest = [one.oldest_s for one in groups if one.oldest_s is not None]
    retrying, dead = sum(one.retrying for one in groups), sum(one.dead for one in groups)
    pool = snapshot.pool
    return [
        tile(
            "Workers",
            f"{running} of {len(workers)}" if workers else str(len(snapshot.http)),
            f"cordata {snapshot.version}",
            "units",
            "processes",
        ),
        tile(
            "Primary",
            "none" if not (primary and leads) else primary.holder.rpartition("/")[0],
            "" if primary is None else f"term {primary.term}, since {span(primary.since_s)}",
            "primary",
        ),
        tile(
            "Requests",
            f"{rate(sum(one.requests_per_s for one in snapshot.http))}/s",
            f"p99 {milliseconds(max(p99, default=None)) or '-'}, {rate(errors)}/s failed",
            "http",
        ),
        tile(
            "Events",
            f"{rate(sum(snapshot.handled.values()))}/s",
            f"{shown(sum(one.ready for one in groups))} ready"
            + (f", the oldest {span(max(oldest))}" if oldest else "")
            + f"; {shown(retrying)} retrying, {shown(dead)} dead",
            "groups",
            "subscriptions",
        ),
        tile(
            "Pool",
            f"{sum(one.busy for one in pool)} busy" if pool else "none",
            f"{sum(one.ready for one in pool)} ready, {sum(one.waiting for one in pool)} waiting",
            "pool",
        ),
        tile(
            "Mail",
            "-" if mail is None else f"{shown(mail.waiting)} wait",
            "" if mail is None else f"{mail.failed} failed in 24 hours",
            "mail",
        ),
    ]


def moment(at_us: int | None) -> str:
    """A time in UTC; empty for None."""
    return "" if at_us is None else f"{clock.from_us(at_us):%Y-%m-%d %H:%M:%S}"


@cache
def environment() -> Environment:
    """The templates; they escape what they insert."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
