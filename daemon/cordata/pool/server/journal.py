"""The file of sessions and globals: appended as they change, rewritten when mostly old.

```
 open: replay --> appending --write fails--> degraded --every 5 s: rewrite--> appending
                      |  ^                       (sessions go on, in memory only)
    much larger than what lives: rewrite, in slices; until its end records go to both files
```
One write() for all that changed in a turn of the loop, before its answers leave; no fsync: what
the kernel has survives this process, not the machine.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cordata.core.pool.record import MAGIC, Change, encode, scan, version_of
from cordata.errors import ConfigError, is_transient
from cordata.pool.server.appendfile import AppendFile, lock

#: Larger than twice what lives, and by so much: rewrite.
_SLACK_BYTES = 4 * 1024 * 1024
#: Of a rewrite, at once.
_SLICE_BYTES = 64 * 1024


class Replay(NamedTuple):
    """What was found at the start."""

    records: int = 0
    #: Torn or damaged bytes at the end, cut off.
    dropped_bytes: int = 0
    #: What the file was put aside as, since its head was not that of this version; "": it was read.
    aside: str = ""
    #: Its version, if it had one.
    version: int | None = None


class Journal:
    """See the module. Blocks, but shortly: the page cache takes what is written."""

    def __init__(self, directory: Path) -> None:
        """What the machine lacks for a while is in `trouble`, and tried again by `begin`.

        Raises: ConfigError when another manager has the directory, or it cannot be used.
        """
        self._directory = directory
        self._path = directory / "sessions.journal"
        self._new_path = directory / "sessions.journal.new"
        #: Why the file is not written; "": it is.
        self.trouble = ""
        self.records = 0
        self.rewrites = 0
        self._pending: list[bytes] = []
        self._new: AppendFile | None = None
        self._left: Iterator[Change] = iter(())
        #: What came since the last slice of a rewrite.
        self._behind_bytes = 0
        self._lock = -1
        self._file: AppendFile | None = None
        self._open()

    @property
    def degraded(self) -> bool:
        """Whether changes are not saved."""
        return bool(self.trouble)

    @property
    def rewriting(self) -> bool:
        """Whether `step` has something to do."""
        return self._new is not None

    def replay(self, load: Callable[[Change], None]) -> Replay:
        """Read the file from its start, once; `load` keeps copies only. Raises: OSError.

        One that cannot be begun, on a full disk, is in `trouble`.
        """
        file = self._file
        if file is None:
            return Replay()
        size = file.size_bytes
        if size == 0:
            self._begin(file)
            return Replay()
        # Not closed by hand: it goes with the last view into it.
        mapped = memoryview(mmap.mmap(file.fd, size, access=mmap.ACCESS_READ))
        if bytes(mapped[: len(MAGIC)]) != MAGIC:
            version = version_of(mapped)
            name = "sessions.damaged" if version is None else f"sessions.version-{version}"
            os.replace(self._path, self._path.with_name(name))
            file.close()
            self._file = AppendFile(self._path, fresh=True)
            self._begin(self._file)
            return Replay(dropped_bytes=size, aside=name, version=version)
        good, count = _load(mapped, load)
        if good < size:
            file.cut(good)
        self.records = count
        return Replay(records=count, dropped_bytes=size - good)

    def append(self, changes: Sequence[Change]) -> None:
        """To be written by the next `flush`."""
        if self.trouble and self._new is None:
            return
        self._pending += map(encode, changes)

    def flush(self) -> None:
        """Write what was appended. A disk that is full, or broken, shows in `trouble`."""
        if not self._pending:
            return
        data = b"".join(self._pending)
        count = len(self._pending)
        self._pending.clear()
        if self._file is not None and not self.trouble:
            try:
                self._file.write(data)
                self.records += count
            except OSError as error:
                self.trouble = error.strerror or str(error)
        if self._new is not None:
            self._behind_bytes += len(data)
            try:
                self._new.write(data)
            except OSError:
                self._give_up()

    def due(self, live_bytes: int) -> bool:
        """Whether most of the file is old, or it has to be made anew after trouble."""
        if self._new is not None:
            return False
        if self._file is None or self.trouble:
            return True
        return self._file.size_bytes > 2 * live_bytes + _SLACK_BYTES

    def begin(self, snapshot: Iterable[Change]) -> bool:
        """Begin to write everything anew, beside the file; False: that is not possible either."""
        try:
            if self._file is None and not self._open_late():
                return False
            self._new = AppendFile(self._new_path, fresh=True)
            self._new.write(MAGIC)
        except OSError:
            self._give_up()
            return False
        self._left = iter(snapshot)
        return True

    def step(self) -> bool:
        """Write one slice of it; True: this was the last, and the file is the new one.

        It is larger than what came since the last one, so that it ends whatever comes.
        """
        new = self._new
        if new is None:
            return False
        slice_: list[bytes] = []
        size, enough = 0, max(_SLICE_BYTES, 2 * self._behind_bytes)
        self._behind_bytes = 0
        try:
            while size < enough:
                change = next(self._left, None)
                if change is None:
                    new.write(b"".join(slice_))
                    os.replace(self._new_path, self._path)
                    break
                slice_.append(encode(change))
                size += len(slice_[-1])
            else:
                new.write(b"".join(slice_))
                return False
        except OSError:
            self._give_up()
            return False
        if self._file is not None:
            self._file.close()
        self._file, self._new = new, None
        self.trouble = ""
        self.rewrites += 1
        return True

    def status(self) -> dict[str, Any]:
        """For the operator."""
        return {
            "bytes": self._file.size_bytes if self._file is not None else 0,
            "records": self.records,
            "degraded": self.degraded,
            "rewrites": self.rewrites,
        }

    def close(self) -> None:
        """Write the rest and give the directory back."""
        self.flush()
        self._give_up()
        if self._file is not None:
            self._file.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _open(self) -> None:
        try:
            if self._lock < 0:
                self._lock = lock(self._directory)
            self._file = AppendFile(self._path, fresh=False)
        except OSError as error:
            # When the parent is missing, too, it may be a disk that is mounted later.
            if self._directory.parent.is_dir() and not is_transient(error):
                self._unlock()
                text = f"{error.filename} cannot be used: {error.strerror}"
                raise ConfigError(text) from error
            self.trouble = f"{error.filename}: {error.strerror}"

    def _open_late(self) -> bool:
        """What could not be opened at the start. Raises: OSError."""
        try:
            self._open()
        except ConfigError as error:
            self.trouble = str(error)
        if self._file is not None and self._file.size_bytes > len(MAGIC):
            # It was not there at the start: what it says is older than what we have, but not ours.
            os.replace(self._path, self._path.with_name("sessions.former"))
        return self._file is not None

    def _begin(self, file: AppendFile) -> None:
        """A new file's head."""
        try:
            file.write(MAGIC)
        except OSError as error:
            self.trouble = error.strerror or str(error)

    def _give_up(self) -> None:
        """No rewrite now; the file goes on as it is."""
        if self._new is not None:
            self._new.close()
            self._new = None
        self._left = iter(())
        with contextlib.suppress(OSError):
            self._new_path.unlink()


def _load(data: memoryview, load: Callable[[Change], None]) -> tuple[int, int]:
    """(where the good part ends, records)."""
    good, count = len(MAGIC), 0
    for found in scan(data, len(MAGIC)):
        load(found.change)
        good, count = found.end, count + 1
    return good, count
