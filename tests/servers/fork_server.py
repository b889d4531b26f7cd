"""Runs the commands `cordata` and `alpinehub` as forks of a process that has imported them.

    done = run("cordata", ["outbox", "list"], given="", cwd=ROOT, environment={...})
    started, output = start("tests.some.module", ["word"], environment={...})
    process = popen("cordata", ["worker", "0"], stdout=None, environment={...})

A command of its own interpreter spends 0.2 to 0.3 s of processor time on imports, and the tests run
thousands. A fork is a real process all the same, with its own arguments, environment, directory,
standard streams and exit status. At its end threads are waited for, exit functions run and output
is flushed as in any program; only the interpreter is not taken apart, which would copy all that the
fork shares with the server (23 of 36 ms of processor time of `cordata --version`). The server is
single-threaded, starts with the first command, and dies with the process that started it. Some
tests start programs by themselves, so that the real start and end are tested, too.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ != "__main__":
    from tests.servers.reaper import watched

ROOT = Path(__file__).parents[2]
#: The packages of their commands.
_PROGRAMS = {"cordata": "cordata.cli", "alpinehub": "alpinehub.cli"}
#: Imported before the first fork, with all modules below them: what a command imports by itself, it
#: imports each time. The store on PostgreSQL alone takes 60 ms.
_PACKAGES = (
    *_PROGRAMS.values(),
    "alpinehub.alpinebits",
    "cordata.broker",
    "cordata.http",
    "cordata.services",
    "cordata.status",
    "cordata.store",
    "cordata.wiring",
)
_ALSO = (
    "aiosmtplib",
    "alpinehub.app",
    "encodings.idna",
    "phonenumbers",
    "rich.console",
    "rich.table",
    "sdnotify",
    "systemd.daemon",
    "uvloop",
)
_MAX_REQUEST_BYTES = 1 << 20
_TIMEOUT_S = 300.0


def run(
    program: str,
    words: Sequence[str],
    *,
    given: str | None = None,
    cwd: str | os.PathLike[str] = ROOT,
    environment: Mapping[str, str],
) -> subprocess.CompletedProcess[str]:
    """Exit code, stdout and stderr of a command, `given` on its stdin; None: that is empty.

    Raises: subprocess.TimeoutExpired after 300 s; the command is killed.
    """
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()
    from_stderr, stderr = os.pipe()
    try:
        started = _ask(program, words, (stdin, stdout, stderr), cwd, environment)
    finally:
        for fd in (stdin, stdout, stderr):
            os.close(fd)
    with started.connection as connection:
        found: dict[int, str] = {}

        def read(fd: int) -> None:
            with open(fd, encoding="utf-8") as file:
                found[fd] = file.read()

        def write() -> None:
            with (
                contextlib.suppress(BrokenPipeError),
                open(to_stdin, "w", encoding="utf-8") as file,
            ):
                file.write(given or "")

        threads = [threading.Thread(target=read, args=(fd,)) for fd in (from_stdout, from_stderr)]
        threads.append(threading.Thread(target=write))
        for thread in threads:
            thread.start()
        try:
            status = int(connection.recv(32))
        except TimeoutError:
            os.kill(started.pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired([program, *words], _TIMEOUT_S) from None
        finally:
            for thread in threads:
                thread.join()
    code = os.waitstatus_to_exitcode(status)
    return subprocess.CompletedProcess(
        [program, *words], code, found[from_stdout], found[from_stderr]
    )


@dataclass(frozen=True, slots=True)
class Started:
    """A process that runs. `connection` is readable when it has ended: the status of os.wait()."""

    pid: int
    connection: socket.socket


def start(
    module: str, words: Sequence[str], *, environment: Mapping[str, str]
) -> tuple[Started, socket.socket]:
    """`python -m MODULE` with an empty stdin, and what it writes to its stdout.

    That is no pipe: at its end uvloop closes the descriptor of a pipe twice, and the second time it
    may be one that another thread has just opened. Of a socket it knows how.
    """
    output, stdout = socket.socketpair()
    try:
        with stdout, open(os.devnull, "rb") as stdin:
            fds = (stdin.fileno(), stdout.fileno(), 2)
            return _ask(module, words, fds, ROOT, environment), output
    except BaseException:
        output.close()
        raise


class Process:
    """What tests use of `subprocess.Popen`, for a fork."""

    def __init__(self, started: Started, stdout: int | None, stderr: int) -> None:
        """`stdout` and `stderr`: what its output is read from, as text; None: it is not."""
        self.pid = started.pid
        #: As of `subprocess`; None: it runs, or nobody has asked.
        self.returncode: int | None = None
        self.stdout = None if stdout is None else open(stdout, encoding="utf-8")
        self.stderr = open(stderr, encoding="utf-8")
        self._connection = started.connection
        self._connection.setblocking(False)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        with self._lock:
            if self.returncode is None:
                with contextlib.suppress(BlockingIOError):
                    self.returncode = os.waitstatus_to_exitcode(int(self._connection.recv(32)))
                    self._connection.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended. Raises: subprocess.TimeoutExpired."""
        if (code := self.poll()) is None:
            ended = select.poll()  # select() takes no descriptor above 1023
            ended.register(self._connection, select.POLLIN)
            ended.poll(None if timeout is None else timeout * 1000)
            if (code := self.poll()) is None:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Its output up to its end. Raises: subprocess.TimeoutExpired when it does not end."""
        said = {"stdout": "", "stderr": ""}

        def read(name: str) -> None:
            stream = getattr(self, name)
            if stream is not None and not stream.closed:
                with stream:
                    said[name] = stream.read()

        threads = [threading.Thread(target=read, args=(name,), daemon=True) for name in said]
        for thread in threads:
            thread.start()
        self.wait(timeout)
        for thread in threads:
            thread.join(timeout)
        return said["stdout"], said["stderr"]

    def send_signal(self, number: int) -> None:
        """Nothing is sent to one that has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def popen(
    program: str,
    words: Sequence[str],
    *,
    stdout: int | None = subprocess.PIPE,
    cwd: str | os.PathLike[str] = ROOT,
    environment: Mapping[str, str],
) -> Process:
    """Start a command with an empty stdin and its stderr in a pipe; `stdout` None: as of here."""
    stdin = os.open(os.devnull, os.O_RDONLY)
    from_stdout, to_stdout = (None, 1) if stdout is None else os.pipe()
    from_stderr, to_stderr = os.pipe()
    try:
        started = _ask(program, words, (stdin, to_stdout, to_stderr), cwd, environment)
    finally:
        for fd in {stdin, to_stdout, to_stderr} - {1}:
            os.close(fd)
    return Process(started, from_stdout, from_stderr)


def _ask(
    program: str,
    words: Sequence[str],
    fds: Sequence[int],
    cwd: str | os.PathLike[str],
    environment: Mapping[str, str],
) -> Started:
    request = {
        "program": program,
        "words": list(words),
        "cwd": os.fspath(cwd),
        "environment": dict(environment),
    }
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(_server.address())
        socket.send_fds(connection, [json.dumps(request).encode()], fds)
        return Started(int(connection.recv(32)), connection)
    except BaseException:
        connection.close()
        raise


class _Server:
    """The one of this process; a fork of this process (xdist has none) would start its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._address = ""
        self._process: subprocess.Popen[bytes] | None = None

    def address(self) -> str:
        """Where it listens; it is started at the first call."""
        with self._lock:
            if self._owner != os.getpid():
                self._owner = os.getpid()
                self._address = f"\0cordata-commands-{self._owner}-{os.urandom(4).hex()}"
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                    listener.bind(self._address)
                    listener.listen(64)
                    environment = {
                        name: value
                        for name, value in os.environ.items()
                        if not name.startswith(("CORDATA_", "ALPINEHUB_", "LISTEN_", "NOTIFY_"))
                    }
                    path = f"{ROOT / 'daemon'}{os.pathsep}{ROOT}"
                    self._process = watched(
                        subprocess.Popen(
                            [sys.executable, "-m", __name__, str(listener.fileno())],
                            cwd=ROOT,
                            env={**environment, "PYTHONPATH": path},
                            pass_fds=[listener.fileno()],
                            stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL,
                        )
                    )
            return self._address

    def close(self) -> None:
        """End it; commands that run go on."""
        if self._process and self._owner == os.getpid():
            self._process.kill()
            self._process.wait()


_server = _Server()
atexit.register(_server.close)


def _load() -> None:
    for package in _PACKAGES:
        module = importlib.import_module(package)
        for found in pkgutil.walk_packages(module.__path__, f"{package}."):
            importlib.import_module(found.name)
    for name in _ALSO:
        importlib.import_module(name)
    app: Any = importlib.import_module("alpinehub.app").app
    config: Any = importlib.import_module("cordata.config")
    store: Any = importlib.import_module("cordata.store")
    # Kept by these functions: the statements of both stores, and the types of all settings.
    for dialect in ("sqlite", "postgres"):
        store.Queries.load(app.query_packages, dialect)
    config.build(config.open_document(None), app.settings_classes)
    # A passphrase costs each backup and each restore a second and 256 MiB, here next to nothing: a
    # backup that a command of its own interpreter makes has the real cost, and a test asks for it.
    argon2id: Any = importlib.import_module("nacl.pwhash.argon2id")
    argon2id.OPSLIMIT_MODERATE = argon2id.OPSLIMIT_MIN
    argon2id.MEMLIMIT_MODERATE = argon2id.MEMLIMIT_MIN
    gc.collect()
    gc.freeze()  # the pages stay shared


def _serve(listener: socket.socket) -> str:
    """Accept for ever. Returns in a process that is to be a program: its name."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that says it has ended
    events = select.poll()
    events.register(listener, select.POLLIN)
    while True:
        for ready, _ in events.poll():
            if ready in running:
                pid, connection = running.pop(ready)
                events.unregister(ready)
                os.close(ready)
                _answer(connection, os.waitpid(pid, 0)[1])
                connection.close()
                continue
            connection, _ = listener.accept()
            packet, fds, _, _ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, 3)
            if not packet:
                connection.close()
                continue
            pid = os.fork()
            if pid == 0:
                return _become(json.loads(packet), fds)
            for fd in fds:
                os.close(fd)
            _answer(connection, pid)
            ended = os.pidfd_open(pid)
            running[ended] = pid, connection
            events.register(ended, select.POLLIN)


def _answer(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # who asked may be gone
        connection.send(str(number).encode())


def _become(request: dict[str, object], fds: Sequence[int]) -> str:
    """Make this process what the start of an interpreter would have made."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 65_536 else 65_536)
    environment, words = request["environment"], request["words"]
    assert isinstance(environment, dict) and isinstance(words, list)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    program = str(request["program"])
    sys.argv[:] = [program, *words]
    sys.orig_argv[:] = [sys.executable, "-m", program, *words]
    sys.path[0] = os.getcwd()
    importlib.invalidate_caches()
    return program


def _run_program(program: str) -> None:
    """Run it. Returns, or raises, for an end that is left to the interpreter."""
    code: object = 0
    try:
        if program in _PROGRAMS:
            importlib.import_module(_PROGRAMS[program]).main()
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code or 0
    if isinstance(code, int):
        threading._shutdown()  # type: ignore[attr-defined]  # as Py_Finalize() begins
        atexit._run_exitfuncs()
        gc.collect()  # what is said about things that were not closed
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code & 0xFF)
    sys.exit(code)  # type: ignore[arg-type]


if __name__ == "__main__":
    _load()
    _program = _serve(socket.socket(fileno=int(sys.argv[1])))
    _run_program(_program)
