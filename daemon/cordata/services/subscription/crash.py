"""Attempts that ended with their process: each counts as a failed attempt.

    <runtime>/attempts/<pid>.<start>.<namespace>.<random>    a record per running handler:
                                                             which event, under which claim

A process that dies leaves its file behind. (No sync: the page cache outlives it, and a reboot ends
all attempts.) The process that claims a partition next reads the files of dead processes, counts an
attempt that it finds there as failed, and erases its record once that is stored.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from cordata.eventstore.partition import Claim, PartitionState
from cordata.log import LogThrottle, logger
from cordata.pid import is_gone, namespace, start_of

log = logger("cordata.engine")

#: Subscription (a hash of its name), partition, term, position, number of the attempt.
_RECORD = struct.Struct("<8sIQQI")
_EMPTY = bytes(_RECORD.size)
#: A crash counts if it was under one of this many claims before: the processes between may have
#: died of something else before they counted it. A reset skips more terms than that.
_CLAIMS = 4


class RunningAttempts:
    """The running attempts of this process, recorded in its file."""

    def __init__(self, runtime_dir: Path) -> None:
        directory = runtime_dir / "attempts"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        unique = os.urandom(4).hex()
        self._path = directory / f"{os.getpid()}.{start_of()}.{namespace()}.{unique}"
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._log_throttle = LogThrottle()
        self._free: list[int] = []
        self._slots = 0

    def begin(self, claim: Claim, position: int, number: int) -> int:
        """Record that an attempt begins. Returns the slot for `end`."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._slots
            self._slots += 1
        record = _RECORD.pack(
            _hash(claim.subscription), claim.partition, claim.term, position, number
        )
        self._write(slot, record)
        return slot

    def end(self, slot: int) -> None:
        """Erase the record of an attempt that has ended."""
        self._write(slot, _EMPTY)
        self._free.append(slot)

    def _write(self, slot: int, record: bytes) -> None:
        """A full runtime directory ends no worker: its attempts are only not recorded."""
        try:
            os.pwrite(self._fd, record, slot * _RECORD.size)
        except OSError as error:
            if self._log_throttle.is_due(str(error)):
                text = "an event that ends this process will not count as failed: %s: %s"
                log.warning(text, self._path, error.strerror)

    def close(self) -> None:
        """Remove the file, unless handlers still run: then it stays as their record."""
        if len(self._free) == self._slots:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
        os.close(self._fd)


@dataclass(frozen=True, slots=True)
class CrashedAttempt:
    """A record in the file of a dead process."""

    path: Path
    offset: int
    term: int
    position: int
    number: int

    def erase(self) -> None:
        """Delete the record: it is counted, or no longer relevant."""
        with contextlib.suppress(FileNotFoundError), self.path.open("r+b") as file:
            os.pwrite(file.fileno(), _EMPTY, self.offset)


class CrashedAttempts:
    """The attempts that ended with a process of this host."""

    def __init__(self, runtime_dir: Path) -> None:
        self._directory = runtime_dir / "attempts"
        self._found: dict[tuple[bytes, int], list[CrashedAttempt]] = {}

    def load(self, states: Iterable[PartitionState]) -> None:
        """Read the files again, and erase records that are obsolete according to `states`."""
        self._found = {}
        with contextlib.suppress(FileNotFoundError):  # the runtime directory was emptied
            for path in self._directory.iterdir():
                if _is_dead(path):
                    self._read(path)
        for state in states:
            for one in self._found.get((_hash(state.subscription), state.partition), ()):
                if one.position <= state.position or one.term < state.term - _CLAIMS:
                    one.erase()

    def find(self, claim: Claim, position: int, number: int) -> list[CrashedAttempt]:
        """Records of this attempt under one of the claims right before this one."""
        if not self._found:
            return []
        return [
            one
            for one in self._found.get((_hash(claim.subscription), claim.partition), ())
            if (one.position, one.number) == (position, number)
            and claim.term - _CLAIMS <= one.term < claim.term
        ]

    def counted(self, claim: Claim, found: Iterable[CrashedAttempt]) -> None:
        """Erase records that are stored as failed attempts, so that they count once."""
        for one in found:
            one.erase()
            self._found[_hash(claim.subscription), claim.partition].remove(one)

    def _read(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return
        content = content[: len(content) // _RECORD.size * _RECORD.size]
        if not content.strip(b"\0"):
            path.unlink(missing_ok=True)
            return
        for index, (name, partition, *rest) in enumerate(_RECORD.iter_unpack(content)):
            one = CrashedAttempt(path, index * _RECORD.size, *rest)
            self._found.setdefault((name, partition), []).append(one)


def _hash(subscription: str) -> bytes:
    return blake2b(subscription.encode(), digest_size=8).digest()


def _is_dead(path: Path) -> bool:
    """Whether the process of a file is gone. False if its namespace is another one, or if it is a
    file of another kind.
    """
    try:
        pid, start, where, _ = path.name.split(".")
        return where == str(namespace()) and is_gone(int(pid), int(start))
    except ValueError:
        return False
