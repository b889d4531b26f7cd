"""The judgement: a snapshot -> healthy, degraded or down, with the reasons. No IO."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cordata.doctor.judge import judge_wal
from cordata.metrics.backlog import shown
from cordata.services.unhandled_event import ABSENT_S
from cordata.status.snapshot import Part, Snapshot, UnitState
from cordata.systemd.hint import log_hint, start_hint

State = Literal["healthy", "degraded", "down"]
#: A process that systemd has restarted, and that is up for less than this, may fail again.
_STABLE_S = 60.0
#: Longest time that a message or a mail should wait.
_MESSAGE_S, _MAIL_S = 60.0, 900.0
#: Share of its watchdog's time after which a process is late: it notifies three times as often.
_LATE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why it is not healthy."""

    state: State
    part: Part
    text: str


def judge(snapshot: Snapshot) -> list[Reason]:
    """All reasons, the worst first; none: healthy."""
    found = [*_parts(snapshot), *_units(snapshot), *_workers(snapshot)]
    found += [*_store(snapshot), *_groups(snapshot), *_rest(snapshot)]
    return sorted(found, key=lambda reason: reason.state != "down")


def worst(reasons: Sequence[Reason]) -> State:
    """The state of the whole, or of some parts. `reasons`: the worst first."""
    return reasons[0].state if reasons else "healthy"


def _degraded(part: Part, text: str) -> Reason:
    return Reason(state="degraded", part=part, text=text)


def _down(part: Part, text: str) -> Reason:
    return Reason(state="down", part=part, text=text)


def _parts(snapshot: Snapshot) -> Iterator[Reason]:
    for part, error in snapshot.errors.items():
        # Without units, only the store knows who runs.
        is_down = part == "store" and (part in snapshot.unavailable or not snapshot.systemd)
        yield (_down if is_down else _degraded)(part, error)


def _units(snapshot: Snapshot) -> Iterator[Reason]:
    for unit in snapshot.units:
        if unit.state == "failed":
            text = f"{unit.unit} failed ({unit.result}): `systemctl status {unit.unit}`"
            yield _degraded("units", text)
        elif unit.wanted and unit.state not in ("active", "reloading"):
            text = f"{unit.unit} is {unit.state}"
            if unit.sub_state == "auto-restart":
                text += f": it ended ({unit.result}), restart {unit.restarts + 1} follows"
            elif unit.restarts:
                text += f", after {unit.restarts} restarts"
            yield _degraded("units", f"{text}: `systemctl status {unit.unit}`")
        elif unit.restarts and unit.up_s is not None and unit.up_s < _STABLE_S:
            text = f"{unit.unit}: {unit.restarts} restarts, the last {unit.up_s:.0f} s ago"
            yield _degraded("units", f"{text}: `journalctl -u {unit.unit}`")
        if unit.load_state != "loaded":
            text = f"systemd cannot use the files of {unit.unit} ({unit.load_state})"
            yield _degraded("units", f"{text}, and would not start it again: `cordata doctor`")
        if _is_late(unit):
            text = f"{unit.unit} has not notified its watchdog for {unit.watchdog_age_s:.0f} s"
            yield _degraded("units", f"{text}: `journalctl -u {unit.unit}`")
    if outdated := [unit.unit for unit in snapshot.units if unit.outdated]:
        text = f"{' '.join(outdated)}: older than the installed version; `cordata rolling-restart`"
        yield _degraded("units", text)


def _is_late(unit: UnitState) -> bool:
    if unit.watchdog_s is None or unit.watchdog_age_s is None:
        return False
    return unit.watchdog_age_s > _LATE * unit.watchdog_s


def _workers(snapshot: Snapshot) -> Iterator[Reason]:
    """Whether anybody serves."""
    if "units" in snapshot.errors:
        return
    if snapshot.systemd:
        states = {unit.unit: unit.state for unit in snapshot.units}
        workers = [state for unit, state in states.items() if unit.startswith("worker@")]
        if not {"active", "reloading"} & set(workers):
            yield _down("units", f"no worker runs: `{start_hint(units=True)}`")
        elif states.get("http.socket") != "active":
            yield _down("units", f"http.socket does not listen: `{start_hint(units=True)}`")
    elif snapshot.store and not _runs(snapshot):
        yield _down("processes", f"no process runs: {start_hint(units=False)}")


def _runs(snapshot: Snapshot) -> bool:
    """Whether a process of this host runs. Workers without event handlers do not join the store:
    those that serve HTTP are known by what they count.
    """
    primary, host = snapshot.primary, snapshot.host
    leads = primary is not None and primary.is_held and primary.holder.startswith(f"{host}/")
    joined = any(one.alive and one.host == host for one in snapshot.processes)
    return leads or joined or bool(snapshot.pool) or bool(snapshot.http)


def _store(snapshot: Snapshot) -> Iterator[Reason]:
    primary, store = snapshot.primary, snapshot.store
    if store is None:
        return
    sizes = store.wal_bytes, store.wal_limit_bytes
    if sizes[0] and sizes[1] and judge_wal(sizes[0], sizes[1]).state != "ok":
        yield _degraded("store", "the write-ahead log is far over its limit: `cordata doctor`")
    if primary is None:
        yield _degraded("primary", "there has been no primary yet")
    elif not primary.is_held:
        how = "has released its lease" if primary.released else "has ended"
        look = log_hint("-u primary", units=snapshot.systemd)
        yield _degraded("primary", f"there is no primary: {primary.holder} {how}; {look}")


def _groups(snapshot: Snapshot) -> Iterator[Reason]:
    for group in snapshot.groups:
        if group.absent_s > ABSENT_S:
            hours = group.absent_s / 3600
            text = f"{group.group}: no process has had it for {hours:.0f} h: `cordata group list`"
            yield _degraded("groups", text)
        elif group.oldest_s is not None and group.oldest_s > _MESSAGE_S:
            waiting = f"{shown(group.ready)} messages wait"
            text = f"{group.group}: {waiting}, the oldest {group.oldest_s:.0f} s"
            yield _degraded("groups", f"{text}: `cordata group list`")
        if group.dead:
            text = f"{group.group}: {shown(group.dead)} dead letters: `cordata dlq list`"
            yield _degraded("groups", text)
    for subscription, count in snapshot.blocked.items():
        text = f"{subscription}: {count} partitions are blocked: `cordata subscriptions list`"
        yield _degraded("subscriptions", text)


def _rest(snapshot: Snapshot) -> Iterator[Reason]:
    if snapshot.redis_away:
        workers = " ".join(snapshot.redis_away)
        yield _degraded("redis", f"events of {workers} wait for Redis: `cordata doctor`")
    for job in snapshot.jobs:
        if job.state == "failed":
            look = log_hint(f"JOB={job.job}", units=snapshot.systemd)
            yield _degraded("jobs", f"{job.job} {job.period} failed: {look}")
    if mail := snapshot.mail:
        if mail.failed:
            text = f"{mail.failed} mails failed in the last 24 hours"
            yield _degraded("mail", f"{text}: `cordata mail list --state failed`")
        if mail.configured and mail.oldest_s is not None and mail.oldest_s > _MAIL_S:
            text = f"{shown(mail.waiting)} mails wait, the oldest {mail.oldest_s:.0f} s"
            yield _degraded("mail", f"{text}: `cordata mail list`")
    for pool in snapshot.pool:
        look = log_hint(f"-u worker@{pool.worker}", units=snapshot.systemd)
        if not pool.answers:
            yield _degraded("pool", f"worker {pool.worker} does not answer: {look}")
        elif pool.start_error:
            text = f"no child of worker {pool.worker} starts: {pool.start_error}"
            yield _degraded("pool", f"{text}: {look}")
        elif not (pool.ready or pool.busy or pool.drained):
            yield _degraded(
                "pool", f"worker {pool.worker} has no child that takes calls: `cordata pool status`"
            )
    if snapshot.disk and snapshot.disk.state != "ok":
        yield _degraded("disk", f"little space is left for {snapshot.disk.path}: `cordata doctor`")
