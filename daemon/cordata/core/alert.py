"""Alerts by kind: how they are grouped, which text may leave the host, when a mail is due.

error ──fingerprint──> group: count, pending ──due──> one mail for all groups that are due
                         ^                              │
                         └────cool-down, then again─────┘
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b

import msgspec

#: Longest title, a line; longest sample, some lines.
TITLE_CHARS, SAMPLE_CHARS = 200, 2000
#: Kinds that one mail reports; further ones are only counted in it.
TOLD = 30

_CUT = "…"
_UNITS = "service|socket|timer|target"
#: Patterns of personal data and secrets. The first ones match what later ones would match in part.
_PRIVATE = (
    (re.compile(r"(\w+://)(?:[^\s/@]*@)?([^\s/?#\"'<>]+)[^\s\"'<>]*"), rf"\1\2/{_CUT}"),
    (re.compile(rf"[^\s<>\"'@=:,;()]+@[\w.-]+\.(?!(?:{_UNITS})\b)[A-Za-z]{{2,}}"), _CUT),
    (
        re.compile(
            r"(?i)\b((?:[\w-]*(?:password|passwd|secret|token|api[_-]?key))|authorization)"
            r"(\s*[=:]\s*)(?:(?:basic|bearer)\s+)?[^\s,;]+"
        ),
        rf"\1\2{_CUT}",
    ),
    (re.compile(r"(?<!\w)'[^'\n]+'(?!\w)"), f"'{_CUT}'"),
    (re.compile(r'"[^"\n]+"'), f'"{_CUT}"'),
    (re.compile(r"(?<!\w)(?:\+|0)\d[\d /()-]{5,}\d"), _CUT),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), _CUT),
    (re.compile(r"\b(?=\w*\d)[0-9a-fA-F]{16,}\b"), _CUT),
    (re.compile(r"\d{5,}"), _CUT),
)
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def scrub(text: str, ids: Iterable[str] = ()) -> str:
    """A text without what may be personal data or a secret: addresses, telephone numbers, quoted
    text, long numbers and ids, paths and queries of URLs.

    What is one of `ids`, or part of one, stays, as a word of its own: it is known to be harmless.
    The journal keeps the whole text. A name in a sentence cannot be recognised: alerts must
    not have one.
    """
    text = text.encode(errors="backslashreplace").decode()  # a path may hold any byte
    text = _CONTROLS.sub(" ", text[: 4 * SAMPLE_CHARS])
    known = _any_of(ids)
    for pattern, instead in _PRIVATE:
        text = _leave_out(pattern, instead, text, known)
    return text


def _any_of(ids: Iterable[str]) -> re.Pattern[str] | None:
    words = "|".join(re.escape(one) for one in sorted(ids, key=len, reverse=True) if one)
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)") if words else None


def _leave_out(
    pattern: re.Pattern[str], instead: str, text: str, known: re.Pattern[str] | None
) -> str:
    if known is None:
        return pattern.sub(instead, text)
    spans = [found.span() for found in known.finditer(text)]

    def cut(found: re.Match[str]) -> str:
        if any(start <= found.start() and found.end() <= end for start, end in spans):
            return found[0]
        return found.expand(instead)

    return pattern.sub(cut, text)


def fingerprint(*parts: str) -> str:
    """The short id of what belongs together: the same parts give the same one, on every host."""
    return blake2b("\0".join(parts).encode(errors="replace"), digest_size=6).hexdigest()


class AlertGroup(msgspec.Struct, kw_only=True):
    """Alerts of one kind. Moments are microseconds since the epoch."""

    fingerprint: str
    #: Name of the cause: `dead-letter`, `app-silent:EDELW`, an exception and its place.
    cause: str
    title: str
    #: The latest text, scrubbed.
    sample: str
    #: Where it happened last: host and role.
    place: str
    #: Mailed at once; others wait for more of their kind.
    urgent: bool
    count: int
    #: Those that no mail has reported yet.
    pending: int
    first_at: int
    last_at: int
    #: Time of the first one that is not reported.
    since_at: int
    mailed_at: int | None = None


def group_of(
    cause: str,
    text: str,
    *,
    place: str,
    now_us: int,
    urgent: bool,
    pending: int = 1,
    key: str = "",
    ids: Sequence[str] = (),
) -> AlertGroup:
    """One alert as a group; `key` is what it is told apart by, `cause` unless it is given; `ids`
    as in `scrub`.
    """
    text = scrub(text, ids)
    return AlertGroup(
        fingerprint=fingerprint(key or cause),
        cause=scrub(cause, ids)[:TITLE_CHARS],
        title=" ".join(text.split("\n", 1)[0].split())[:TITLE_CHARS],
        sample=text[:SAMPLE_CHARS],
        place=place,
        urgent=urgent,
        count=1,
        pending=pending,
        first_at=now_us,
        last_at=now_us,
        since_at=now_us,
    )


def merge(group: AlertGroup, later: AlertGroup) -> None:
    """Count what came later into a group."""
    if later.pending and not group.pending:
        group.since_at = later.since_at
    group.count += later.count
    group.pending += later.pending
    group.urgent = later.urgent
    group.title, group.sample, group.place = later.title, later.sample, later.place
    group.last_at = max(group.last_at, later.last_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPace:
    """Limits of mails; times in microseconds."""

    #: So many of a kind are due at once,
    count: int
    #: and the first of them after so long.
    wait_us: int
    #: No kind is mailed more often than this.
    cooldown_us: int
    #: Mails an hour, of whatever kind.
    max_per_hour: int

    def due_at(self, group: AlertGroup) -> int:
        """When a group with something pending is to be mailed."""
        soon = group.urgent or group.pending >= self.count
        at = group.since_at if soon else group.since_at + self.wait_us
        return at if group.mailed_at is None else max(at, group.mailed_at + self.cooldown_us)


def subject_of(groups: Sequence[AlertGroup]) -> str:
    """The subject of the mail about these groups."""
    first = groups[0]
    if len(groups) == 1:
        return f"[{first.place}] {first.title}"[:TITLE_CHARS]
    return f"{len(groups)} alerts: {first.title}"[:TITLE_CHARS]


def text_of(groups: Sequence[AlertGroup], pace: AlertPace) -> str:
    """The text of the mail about these groups."""
    parts = [_paragraph(group) for group in groups[:TOLD]]
    if len(groups) > TOLD:
        parts.append(f"{len(groups) - TOLD} more kinds: cordata alerts list")
    parts.append(
        f"Further ones of a kind within {pace.cooldown_us / 1e6:g} s are counted, and told "
        f"later; at most {pace.max_per_hour} mails an hour.\n"
        f"Look: cordata alerts list; cordata alerts show {groups[0].fingerprint}"
    )
    return "\n\n".join(parts) + "\n"


def _paragraph(group: AlertGroup) -> str:
    times = "once" if group.pending == 1 else f"{group.pending} times"
    span = _moment(group.last_at)
    if group.pending > 1:
        # A mail that failed is due later than it happened.
        span = f"{_moment(min(group.since_at, group.last_at))} to {span}"
    lines = [group.sample, f"  {times}, {span}, last at {group.place}"]
    lines.append(f"  {group.fingerprint}: {group.cause}, {group.count} in all")
    return "\n".join(lines)


def _moment(us: int) -> str:
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def add_to(groups: dict[str, AlertGroup], more: Iterable[AlertGroup], limit: int) -> None:
    """Count groups into others, `limit` kinds at most: what is beyond them is one of its own."""
    for group in more:
        key = group.fingerprint
        if key not in groups and len(groups) >= limit:
            key = fingerprint("many")
            group = msgspec.structs.replace(
                group,
                fingerprint=key,
                cause="many",
                title="more kinds of errors than are kept apart",
                sample="more kinds of errors than are kept apart: see the journal",
            )
        if key in groups:
            merge(groups[key], group)
        else:
            groups[key] = group
