"""Starting a child, by `posix_spawn`: a worker has threads and must not fork."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import json
from msgspec.structs import replace

from cordata.pool.shared import page
from cordata.pool.shared.paths import ChildName, Place, parse, socket_address
from cordata.pool.shared.spec import CHANNEL_FD, LISTEN_FD, SPEC_FD, STATUS_FD, ChildSpec

#: Variables that a child does not get: they are between worker and systemd, or lead to secrets.
_WITHHELD = (
    *("NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "CREDENTIALS_DIRECTORY", "JOURNAL_STREAM"),
    *("MAINPID", "MANAGERPID", "CORDATA_"),
)
#: Descriptors are first moved to this number or above, so that none is where another has to go.
_PARKED = 16
#: Connections that may wait while a command runs.
_BACKLOG = 1024
#: Of sockets, status pages and their directory, whose group may call.
_SOCKET_MODE, _STATUS_MODE, _DIRECTORY_MODE = 0o660, 0o640, 0o750


class ChildFiles:
    """The socket and the status page of one child, hidden until it takes calls."""

    def __init__(self, directory: Path, name: ChildName) -> None:
        """Create both. Raises: OSError."""
        self._directory, self._name = directory, name
        hidden = directory / f".{name.status}"
        self.status = os.open(
            hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _STATUS_MODE
        )
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            os.fchmod(self.status, _STATUS_MODE)  # regardless of the umask
            os.ftruncate(self.status, page.SIZE)
            path = directory / f".{name.socket}"
            with socket_address(path) as address:
                self.listener.bind(address)
            path.chmod(_SOCKET_MODE)
            self.listener.listen(_BACKLOG)
        except BaseException:
            self.close()
            self.remove()
            raise

    def status_path(self) -> Path:
        """Path of the status page until `publish`."""
        return self._directory / f".{self._name.status}"

    def publish(self) -> None:
        """Let clients connect. The status page first: clients open it when they see the socket."""
        for name in (self._name.status, self._name.socket):
            (self._directory / f".{name}").rename(self._directory / name)

    def close(self) -> None:
        """Close the worker's descriptors; the child has copies."""
        os.close(self.status)
        self.listener.close()

    def remove(self) -> None:
        """Remove both files, so that no client connects any more."""
        for name in (self._name.socket, self._name.status):
            for file in (self._directory / name, self._directory / f".{name}"):
                file.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A process that was just started, and the worker's ends of what the two share."""

    pid: int
    #: Readable when it has died.
    pidfd: int
    #: Pipe of its stdout and stderr, non-blocking.
    output: int
    #: Socket for Ping, Pong, Stop and so on, non-blocking.
    channel: socket.socket
    #: Its status page, writable.
    status: mmap.mmap
    files: ChildFiles

    def close(self) -> None:
        """Close the worker's ends, and remove the files."""
        os.close(self.pidfd)
        os.close(self.output)
        self.channel.close()
        self.status.close()
        self.files.remove()


def make_directory(directory: Path) -> None:
    """Create RUNTIME/pool/NAME, readable for the group of the service. Raises: OSError."""
    for one in (directory.parent, directory):
        with contextlib.suppress(FileExistsError):
            one.mkdir(parents=True)
            one.chmod(_DIRECTORY_MODE)


def clean_directory(directory: Path, place: Place) -> None:
    """Remove the files of former children of this place: a killed worker leaves them behind."""
    for file in directory.iterdir():
        found = parse(file.name.removeprefix("."))
        if found is not None and found.place == place:
            file.unlink(missing_ok=True)


def spawn(spec: ChildSpec) -> Spawned:
    """Start a child in a new session, so that a signal to its group reaches its own children, too.

    The child is killed when the calling thread ends, so call this in the main thread. Raises:
    OSError.
    """
    files = ChildFiles(Path(spec.directory), ChildName(spec.place, spec.generation))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        with (
            _spec_file(replace(spec, parent=os.getpid())) as spec_fd,
            contextlib.ExitStack() as stack,
        ):
            status = mmap.mmap(files.status, page.SIZE)
            parked = []
            for fd in (writing, theirs.fileno(), spec_fd, files.status, files.listener.fileno()):
                parked.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _PARKED))
                stack.callback(os.close, parked[-1])
            pid = _start(spec.place, *parked)
        pidfd = os.pidfd_open(pid)
    except BaseException:
        ours.close()
        os.close(reading)
        files.remove()
        raise
    finally:
        theirs.close()
        os.close(writing)
        files.close()
    ours.setblocking(False)
    os.set_blocking(reading, False)
    return Spawned(
        pid=pid,
        pidfd=pidfd,
        output=reading,
        channel=ours,
        status=status,
        files=files,
    )


@contextlib.contextmanager
def _spec_file(spec: ChildSpec) -> Iterator[int]:
    memory = os.memfd_create("cordata-child", os.MFD_CLOEXEC)
    try:
        data = json.encode(spec)
        if os.write(memory, data) != len(data):
            raise OSError("the memory file is too short")
        yield memory
    finally:
        os.close(memory)


def _start(
    place: Place, writing: int, channel: int, spec_fd: int, status: int, listener: int
) -> int:
    # The last argument is not read: it is for lists of processes (ps).
    argv = [sys.executable, "-P", _main(), f"child@{place}"]
    return os.posix_spawn(
        argv[0],
        argv,
        _environment(os.environ),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writing, 1),
            (os.POSIX_SPAWN_DUP2, writing, 2),
            (os.POSIX_SPAWN_DUP2, channel, CHANNEL_FD),
            (os.POSIX_SPAWN_DUP2, spec_fd, SPEC_FD),
            (os.POSIX_SPAWN_DUP2, status, STATUS_FD),
            (os.POSIX_SPAWN_DUP2, listener, LISTEN_FD),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE),
    )


def _main() -> str:
    """The child's program, by path: the package may be outside of the interpreter's `sys.path`."""
    return os.fspath(Path(__file__).parent.with_name("child") / "main.py")


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environ.items() if not key.startswith(_WITHHELD)}
