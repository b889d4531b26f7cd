"""Reads what the units of the runtime wrote into the journal, by python-systemd's Reader.

The units are those in cordata.slice; systemd's own lines about them (started, stopped, failed) are
found by their name in the field UNIT (systemd.journal-fields(7)).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatch
from typing import Any

from cordata.errors import CordataError

SLICE = "cordata.slice"
#: Units of the package, as patterns.
UNITS = (
    *("worker@*.service", "primary.service", "job@*.service", "alert@*.service"),
    *("cordata-backup.*", "http.socket", "workers.target", "cordata.target"),
)
#: Longest wait for new entries, so that Ctrl-C is noticed where a signal does not end the wait.
_WAIT_S = 1.0
LEVELS = ("critical", "error", "warning", "info", "debug")
#: The largest syslog priority of each level (syslog(3)); `notice` counts as info.
_PRIORITIES = dict(zip(LEVELS, (2, 3, 4, 6, 7), strict=True))


class NoJournal(CordataError):
    """This host has no journal that this user may read."""

    code = "no_journal"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One entry."""

    at: datetime
    level: str
    #: Without `.service`: worker@0. Of an entry by systemd: the unit that it is about.
    unit: str
    #: The logger; systemd: written by systemd itself; "": neither says who wrote it.
    logger: str
    message: str
    request_id: str
    message_id: str
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFilter:
    """Matches what every given field is true of; without a field, all of the runtime's entries."""

    #: Names, such as worker@0.service; none: all.
    units: Sequence[str] = ()
    #: Journal field -> values: entries that have one of them in one of the fields. Without fields:
    #: all entries, also those by systemd about the units.
    any_of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: At least this severe.
    level: str = "debug"


class JournalReader:
    """The journal of this host, from one position on. Call `select` first."""

    def __init__(self) -> None:
        """Open the journal: a process that changes its user later can still read it.

        Raises: NoJournal.
        """
        try:
            from systemd import journal
        except ImportError:
            raise NoJournal(hint="install python3-systemd") from None
        self._reader = journal.Reader()
        self._wanted = JournalFilter()
        # Every user may read a journal of their own, in which nothing of the services is.
        with journal.Reader(journal.LOCAL_ONLY | journal.SYSTEM) as services:
            readable = services.has_persistent_files() or services.has_runtime_files()
        if not readable:
            raise NoJournal(
                hint="run it as root, or as a member of the group systemd-journal;"
                " `cordata server` logs to its terminal"
            )

    def select(self, wanted: JournalFilter) -> None:
        """Read only what matches. Call it once."""
        self._wanted = wanted
        if wanted.any_of:
            for number, (name, values) in enumerate(wanted.any_of.items()):
                if number:
                    self._reader.add_disjunction()
                self._match(*self._ours(), *[{name: value} for value in values])
            return
        # A unit that is named may get its first lines by systemd later.
        about = wanted.units or self._reader.query_unique("UNIT")
        named = [unit for unit in about if self._is_ours(unit)]
        self._match(*self._ours())
        if named:
            self._match_systemd(*[{"UNIT": unit} for unit in named])

    def since(self, at_us: int) -> Iterator[JournalEntry]:
        """The entries from a time on, in microseconds since the epoch."""
        self._reader.seek_realtime(max(0, at_us))  # the journal takes no time before 1970
        return self._rest()

    def last(self, count: int) -> Iterator[JournalEntry]:
        """The last entries, the oldest of them first."""
        self._reader.seek_tail()
        entry = self._reader.get_previous(count)
        if not entry:  # there are fewer
            self._reader.seek_head()
            entry = self._reader.get_next()
        if entry:
            yield _entry(entry)
            yield from self._rest()

    def follow(self) -> Iterator[JournalEntry]:
        """What comes after the last entry that was returned; it never ends."""
        if not (self._wanted.units or self._wanted.any_of):
            # Units get their first lines by systemd now: of all of its lines `_rest` takes ours.
            self._reader.flush_matches()
            self._match(*self._ours())
            self._match_systemd()
        while True:
            yield from self._rest()
            self._reader.wait(_WAIT_S)

    def _rest(self) -> Iterator[JournalEntry]:
        while entry := self._reader.get_next():
            if entry.get("_PID") != 1 or self._is_ours(str(entry.get("UNIT", ""))):
                yield _entry(entry)

    def _match(self, *fields: Mapping[str, object]) -> None:
        for one in fields:
            self._reader.add_match(**one)

    def _match_systemd(self, *units: Mapping[str, object]) -> None:
        """Match systemd's lines about these units as well; none: about all."""
        self._reader.add_disjunction()
        self._match({"_PID": 1}, *self._levels(), *units)

    def _ours(self) -> list[Mapping[str, object]]:
        """What the lines of the runtime's processes have."""
        units = [{"_SYSTEMD_UNIT": unit} for unit in self._wanted.units]
        return [{"_SYSTEMD_SLICE": SLICE}, *self._levels(), *units]

    def _levels(self) -> list[Mapping[str, object]]:
        if self._wanted.level == "debug":
            return []
        most = _PRIORITIES[self._wanted.level]
        return [{"PRIORITY": priority} for priority in range(most + 1)]

    @staticmethod
    def _is_ours(unit: str) -> bool:
        return any(fnmatch(unit, pattern) for pattern in UNITS)


def _entry(fields: dict[str, Any]) -> JournalEntry:
    priority = int(fields.get("PRIORITY", 6))
    by_systemd = fields.get("_PID") == 1
    unit = str(fields.get("UNIT" if by_systemd else "_SYSTEMD_UNIT", ""))
    message_id = fields.get("MESSAGE_ID", "")
    at: datetime = fields["__REALTIME_TIMESTAMP"]
    pid = fields.get("_PID")
    return JournalEntry(
        at=at.astimezone(UTC),
        level=next((level for level in LEVELS if priority <= _PRIORITIES[level]), "debug"),
        unit=unit.removesuffix(".service"),
        logger="systemd" if by_systemd else str(fields.get("LOGGER", "")),
        message=_text(fields.get("MESSAGE", "")),
        request_id=_text(fields.get("REQUEST_ID", "")),
        message_id=getattr(message_id, "hex", str(message_id)),
        pid=None if pid is None else int(pid),
    )


def _text(value: object) -> str:
    """A field is bytes where it is not UTF-8."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
