"""The cool-down of alert mails: a small state file, shared by all processes of the host."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cordata.alert.spool import in_first

_FILE, _LOCK = "alerts.json", "alerts.lock"
#: A kind without a mail for this long is deleted from the file.
_KEEP_S = 30 * 86_400.0
#: Pause before a mail that could not be sent may be tried again.
RETRY_S = 60.0
_HOUR_S = 3600.0


class TooMany(Exception):
    """This host has reached its limit of mails per hour."""


@dataclass(slots=True, order=True)
class _Kind:
    #: Wall time (seconds since the epoch) of the last mail.
    mailed_at: float = 0.0
    #: Alerts since then.
    counted: int = 0
    #: Mails before that one, within the hour.
    before: list[float] = field(default_factory=list)
    #: Whether the last one was given back: it was not sent.
    given_back: bool = False

    @property
    def mails(self) -> list[float]:
        """When its mails were sent: the last one, and those within the hour before it."""
        return self.before if self.given_back else [self.mailed_at, *self.before]


_decode = msgspec.json.Decoder(dict[str, _Kind]).decode


class Cooldown:
    """Decides whether an alert becomes a mail."""

    def __init__(
        self, directories: Sequence[Path], *, cooldown_s: float, max_per_hour: int = 1000
    ) -> None:
        """The state is in the first directory that can be written.

        A second one, on another file system, is used when the first one's disk is full, which is
        itself a cause of alerts.
        """
        self._directories = directories
        self._cooldown_s = cooldown_s
        self._max_per_hour = max_per_hour

    def claim(self, kind: str, *, now: float, count: int = 1) -> int | None:
        """Claim the right to mail about a kind at `now` (wall time, seconds).

        `count`: alerts since the last call. Returns how many were only counted since the last mail,
        without the one that is mailed now; None: no mail is due, all were counted. Raises: TooMany
        when the limit of mails per hour, of all kinds together, is reached (for a kind that was
        mailed within the hour half of it, so that a new kind need not wait): then nothing is
        counted; OSError when no directory can be written: then send no mail, as it cannot be
        recorded.
        """
        with self._locked():
            kinds = self._load()
            entry = kinds.setdefault(kind, _Kind())
            # A clock that stepped back must not suppress mails for longer than the cool-down.
            if 0 <= now - entry.mailed_at < self._cooldown_s:
                entry.counted += count
                self._save(kinds, now)
                return None
            mails = {at for one in kinds.values() for at in one.mails if _within(now, at)}
            recent = [at for at in entry.mails if _within(now, at)]
            limit = (self._max_per_hour + 1) // 2 if recent else self._max_per_hour
            if len(mails - {now}) >= limit:  # kinds claimed at `now` share a mail
                raise TooMany()
            counted = entry.counted + count - 1
            kinds[kind] = _Kind(mailed_at=now, before=recent)
            self._save(kinds, now)
            return counted

    def give_back(self, kind: str, *, counted: int, now: float) -> None:
        """The claimed mail was not sent: allow the next one soon, and count this one with it."""
        with self._locked():
            kinds = self._load()
            entry = kinds.setdefault(kind, _Kind())
            entry.mailed_at = now - self._cooldown_s + min(RETRY_S, self._cooldown_s)
            entry.counted, entry.given_back = counted + 1, True
            self._save(kinds, now)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        fd = in_first(self._directories, lambda directory: os.open(directory / _LOCK, flags, 0o600))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _load(self) -> dict[str, _Kind]:
        """The kinds in all directories, the latest of each; a damaged file is ignored."""
        kinds: dict[str, _Kind] = {}
        for directory in self._directories:
            with suppress(OSError, ValueError, msgspec.DecodeError):
                for kind, entry in _decode((directory / _FILE).read_bytes()).items():
                    # The later mail, else the higher count: that directory was written last.
                    kinds[kind] = max(entry, kinds.get(kind, entry))
        return kinds

    def _save(self, kinds: dict[str, _Kind], now: float) -> None:
        kept = {name: c for name, c in kinds.items() if now - c.mailed_at < _KEEP_S}
        data = msgspec.json.encode(kept)
        in_first(self._directories, lambda directory: _replace(directory / _FILE, data))


def _within(now: float, at: float) -> bool:
    return 0 <= now - at < _HOUR_S


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically: after a crash it has its old or its new content."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(fresh, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise
