"""Alerts: how they are grouped by kind, which text may leave the host, when a mail is due.

error ──fingerprint──> group: count, pending ──due──> one mail for all groups that are due
                         ^                              │
                         └────cool-down, then again─────┘
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b

import msgspec
from msgspec import Struct

#: Limits of a title, which is one line, and of a sample, which has several.
TITLE_CHARS, SAMPLE_CHARS = 200, 2000
#: Kinds that one mail describes; of further ones it has only the number.
MAX_KINDS = 30
#: Kinds that a process counts separately.
MAX_GROUPS = 500

_CUT = "…"
_UNITS = "service|socket|timer|target"
#: Patterns of personal data and secrets. The order counts: a later pattern would match only a part
#: of what an earlier one removes. None looks at the same long word from each of its characters: the
#: event loop waits meanwhile.
_PRIVATE = (
    (re.compile(r"(?<!\w)(\w+://)(?:[^\s/@]*@)?([^\s/?#\"'<>]+)[^\s\"'<>]*"), rf"\1\2/{_CUT}"),
    (re.compile(rf"[^\s<>\"'@=:,;()]{{1,256}}+@[\w.-]+\.(?!(?:{_UNITS})\b)[A-Za-z]{{2,}}"), _CUT),
    (
        re.compile(
            r"(?i)(?<![\w-])([\w-]*(?:password|passwd|secret|token|api[_-]?key|authorization))"
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
#: A word with a digit, or from which `scrub` has left out something. A line number of Python code
#: stays: another line is another error.
_VARIABLE = re.compile(rf"(?<!\.py:)(?<![\w{_CUT}])[\w{_CUT}]*[\d{_CUT}][\w{_CUT}]*")
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def scrub(text: str, ids: Iterable[str] = ()) -> str:
    """The text without what may be personal data or a secret: addresses, telephone numbers, quoted
    text, long numbers and ids, paths and queries of URLs.

    A match stays if it is within one of `ids`, which are harmless, where that stands as a whole
    word. The journal has the whole text. Names of people in a sentence cannot be recognised, so the
    text of an alert must not contain any.
    """
    text = text.encode(errors="backslashreplace").decode()  # a path may contain any byte
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


def without_variables(text: str) -> str:
    """The text without what differs between errors of one kind: what `scrub` leaves out, and words
    with digits, such as numbers and ids.
    """
    return _VARIABLE.sub("#", scrub(text))


def fingerprint(*parts: str) -> str:
    """A short id of these parts in hex; the same parts give the same id on every host."""
    return blake2b("\0".join(parts).encode(errors="replace"), digest_size=6).hexdigest()


class AlertGroup(msgspec.Struct, kw_only=True):
    """Alerts of one kind. Times are microseconds since the epoch."""

    fingerprint: str
    #: Name of the cause: `dead-letter`, `app-silent:EDELW`, an exception and its place. Several
    #: kinds may have the same.
    cause: str
    title: str
    #: The latest text, scrubbed.
    sample: str
    #: Where the latest one happened: host and role.
    place: str
    #: Mailed at once; other groups wait for more of their kind.
    urgent: bool
    count: int
    #: Alerts that no mail has reported yet.
    pending: int
    first_at: int
    last_at: int
    #: Time of the first alert that no mail has reported.
    since_at: int
    mailed_at: int | None = None


def group_of(
    cause: str,
    text: str,
    *,
    place: str,
    now_us: int,
    urgent: bool,
    key: str = "",
    ids: Sequence[str] = (),
) -> AlertGroup:
    """A group with one alert. `key` decides its kind (default: `cause`); `ids` as in `scrub`."""
    text = scrub(text, ids)
    return AlertGroup(
        fingerprint=fingerprint(key or cause),
        cause=scrub(cause, ids)[:TITLE_CHARS],
        title=" ".join(text.split("\n", 1)[0].split())[:TITLE_CHARS],
        sample=text[:SAMPLE_CHARS],
        place=place,
        urgent=urgent,
        count=1,
        pending=1,
        first_at=now_us,
        last_at=now_us,
        since_at=now_us,
    )


def merge(group: AlertGroup, later: AlertGroup) -> None:
    """Add a later group of the same kind to `group`."""
    if later.pending and not group.pending:
        group.since_at = later.since_at
    group.count += later.count
    group.pending += later.pending
    group.urgent = later.urgent
    group.title, group.sample, group.place = later.title, later.sample, later.place
    group.last_at = max(group.last_at, later.last_at)


class AlertPace(Struct, frozen=True, kw_only=True):
    """Limits of mails; times in microseconds."""

    #: A group with this many pending alerts is due at once; ...
    count: int
    #: ... with fewer, this long after the first of them.
    wait_us: int
    #: Least time between two mails about one kind.
    cooldown_us: int
    #: Limit of mails in an hour, about all kinds together.
    max_per_hour: int

    def due_at(self, group: AlertGroup) -> int:
        """When a group with pending alerts is to be mailed, in microseconds since the epoch."""
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
    parts = [_paragraph(group) for group in groups[:MAX_KINDS]]
    if len(groups) > MAX_KINDS:
        parts.append(f"{len(groups) - MAX_KINDS} more kinds: cordata alerts list")
    parts.append(
        f"Alerts of the same kind within {pace.cooldown_us / 1e6:g} s are counted and reported "
        f"later. In an hour the primary sends at most {pace.max_per_hour} mails, and each host "
        f"as many about urgent alerts.\n"
        f"For details: cordata alerts list; cordata alerts show {groups[0].fingerprint}"
    )
    return "\n\n".join(parts) + "\n"


def _paragraph(group: AlertGroup) -> str:
    times = "once" if group.pending == 1 else f"{group.pending} times"
    span = _time(group.last_at)
    if group.pending > 1:
        # After a mail that failed, `since_at` may be later than the last alert.
        span = f"{_time(min(group.since_at, group.last_at))} to {span}"
    lines = [group.sample, f"  {times}, {span}, last at {group.place}"]
    in_all = f", {group.count} in all" if group.count > group.pending else ""
    lines.append(f"  {group.fingerprint}: {group.cause}{in_all}")
    return "\n".join(lines)


def _time(us: int) -> str:
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def add_to(groups: dict[str, AlertGroup], more: Iterable[AlertGroup]) -> None:
    """Merge `more` into `groups`. New kinds beyond MAX_GROUPS go into one common group."""
    for group in more:
        key = group.fingerprint
        if key not in groups and len(groups) >= MAX_GROUPS:
            key, title = fingerprint("many"), f"more than {MAX_GROUPS} kinds of errors"
            group = msgspec.structs.replace(
                group, fingerprint=key, cause="many", title=title, sample=f"{title}: see the log"
            )
        if key in groups:
            merge(groups[key], group)
        else:
            groups[key] = group
