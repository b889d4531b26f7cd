"""Starts child processes with systemd's contract: environment variables and descriptors."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

_FIRST_FD = 3  # SD_LISTEN_FDS_START
_PR_SET_PDEATHSIG = 1
#: Descriptors of a child, as LimitNOFILE= of its unit says: a shell gives 1024, less than what
#: max_connections and the store together take.
_DESCRIPTORS = 8192
_OURS = ("LISTEN_", "WATCHDOG_", "NOTIFY_SOCKET")
#: Runs `cordata` with the given arguments in the calling process.
Program = Callable[[Sequence[str]], NoReturn]
# Loaded before any fork: between fork and exec nothing should have to be imported.
_libc = ctypes.CDLL(None, use_errno=True)


def command(*arguments: str) -> list[str]:
    """The argument vector of `cordata ARGUMENTS` with this very interpreter and package.

    By path, because the package may be outside of the interpreter's `sys.path`; -P, so that the
    package's modules do not become top-level ones.
    """
    main = Path(__file__).parent.parent / "__main__.py"
    return [sys.executable, "-P", os.fspath(main), *arguments]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start parameters of a child."""

    #: Arguments of `cordata`.
    arguments: Sequence[str]
    environment: Mapping[str, str]
    #: (name, fd); the child gets them at 3.. with LISTEN_FDS, LISTEN_FDNAMES and its own
    #: LISTEN_PID. Every other descriptor above 2 is closed, stdin is /dev/null.
    sockets: Sequence[tuple[str, int]] = ()


def spawn(start: Start, program: Program | None = None) -> int:
    """Start a child in a new session; returns its pid. The kernel kills it when this process ends.

    `program` runs it in a fork of this process, which has no threads and has imported all that it
    needs; None: a new interpreter is executed. Raises: OSError when there can be no other process.
    """
    parent = os.getpid()
    # A signal to the child must not run the handlers of its parent.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _run(start, parent, program)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(start: Start, parent: int, program: Program | None) -> NoReturn:
    """In the child: run the command and exit. The parent's objects are never finalized: in the
    child their descriptor numbers belong to other files.
    """
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        _detach(parent)
        _place(start.sockets)
        environment = _environment(start.environment, start.sockets)
        argv = command(*start.arguments)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if program is None:
            os.execve(argv[0], argv, environment)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        sys.orig_argv[:] = argv
        sys.argv[:] = argv[2:]
        _show_command(["cordata", *start.arguments])
        program(start.arguments)
    except SystemExit as end:
        _exit(end)
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process ends here
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(1)


def _exit(end: SystemExit) -> NoReturn:
    """End a fork as `sys.exit` ends a process, but for clearing the interpreter's memory.

    That writes to every page that the fork shares with its parent, and each is copied for it.
    """
    code = end.code
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    # As the interpreter does: wait for threads that are no daemons, then call what is registered.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code or 0)


def _detach(parent: int) -> None:
    """Set the descriptor limit, start a new session, and end with the parent."""
    _raise_descriptor_limit()
    os.setsid()  # Ctrl-C reaches only the supervisor, which stops its children in order
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _place(sockets: Sequence[tuple[str, int]]) -> None:
    end = _FIRST_FD + len(sockets)
    # First moved up: a descriptor may have the number that another one must get.
    parked = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, end) for _, fd in sockets]
    for target, fd in enumerate(parked, start=_FIRST_FD):
        os.dup2(fd, target, inheritable=True)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0, inheritable=True)
    os.closerange(end, os.sysconf("SC_OPEN_MAX"))


def _environment(
    environment: Mapping[str, str], sockets: Sequence[tuple[str, int]]
) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
    inherited.update(environment)
    if "WATCHDOG_USEC" in environment:
        inherited["WATCHDOG_PID"] = str(os.getpid())
    if sockets:
        inherited["LISTEN_PID"] = str(os.getpid())
        inherited["LISTEN_FDS"] = str(len(sockets))
        inherited["LISTEN_FDNAMES"] = ":".join(name for name, _ in sockets)
    return inherited


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _show_command(argv: Sequence[str]) -> None:
    """Have ps(1) show this command, cut to the length of the parent's command line.

    ps reads the memory of the command line: proc_pid_cmdline(5).
    """
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start, arg_end of proc_pid_stat(5)
    if begin < end:
        text = b"".join(os.fsencode(word) + b"\0" for word in argv)
        ctypes.memmove(begin, text[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)
