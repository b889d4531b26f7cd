"""Tries what a process that was taken over would try; a unit runs it with `python3 FILE RESULT
[ADDRESS...]`, and RESULT gets JSON: each attempt with "done", or the name of the error.

Each attempt has a process of its own, so that none changes what the next one may do.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

STATE = Path("/var/lib/cordata")
_CLONE_NEWUSER = 0x10000000
_PTRACE_TRACEME, _PTRACE_ATTACH = 0, 16
_PAGE = 4096
_LIBC = ctypes.CDLL(None, use_errno=True)


def call(result: int) -> None:
    """Raise the error of a function of the C library."""
    if result < 0:
        raise OSError(ctypes.get_errno(), "")


def run_from(directory: Path) -> None:
    """Write a program, and execute it."""
    program = directory / "break-out"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    try:
        subprocess.run([program], check=True)
    finally:
        program.unlink()


def load_library() -> None:
    """Map a file that the process has written as code."""
    path = STATE / "break-out.so"
    path.write_bytes(bytes(_PAGE))
    try:
        with path.open("rb") as file:
            mmap.mmap(file.fileno(), _PAGE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | 4).close()
    finally:
        path.unlink()


def set_user_id() -> None:
    path = STATE / "break-out"
    path.touch()
    try:
        path.chmod(0o4755)
    finally:
        path.unlink()


def trace_another() -> None:
    """Attach to a process of the same user, here one that has to allow it: its parent."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        call(_LIBC.ptrace(_PTRACE_ATTACH, child, 0, 0))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def send_to(address: str) -> None:
    """A datagram: a filtered TCP connection would only time out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", (address, 9))


ATTEMPTS: dict[str, Callable[[], object]] = {
    "write a file of others": lambda: Path("/srv/open/break-out").touch(),
    "read a home": lambda: Path("/home/guest/notes").read_text(),
    "read the password file": lambda: Path("/etc/shadow").read_text(),
    "read the master key": lambda: Path("/etc/cordata/credentials/master-key").read_text(),
    "see a process of others": lambda: Path("/proc/1/status").read_text(),
    "see the kernel's settings": lambda: Path("/proc/sys/kernel/version").read_text(),
    "run a file in the state": lambda: run_from(STATE),
    "run a file in /tmp": lambda: run_from(Path("/tmp")),
    "run a file in /var/tmp": lambda: run_from(Path("/var/tmp")),
    "run a file in /dev/shm": lambda: run_from(Path("/dev/shm")),
    "run a file in /run/cordata": lambda: run_from(Path("/run/cordata")),
    "load a library from the state": load_library,
    "map memory to write and run": lambda: mmap.mmap(-1, _PAGE, prot=mmap.PROT_WRITE | 4).close(),
    "make a set-uid file": set_user_id,
    "open a netlink socket": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "open a packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "open a raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
    "be traced": lambda: call(_LIBC.ptrace(_PTRACE_TRACEME, 0, 0, 0)),
    "trace another process": trace_another,
    "make a namespace": lambda: call(_LIBC.unshare(_CLONE_NEWUSER)),
    "change a priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, 5),
}


def outcome(attempt: Callable[[], object]) -> str:
    """ "done", or the name of the error."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            attempt()
            said = "done"
        except OSError as error:
            said = errno.errorcode.get(error.errno or 0, "?")
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


def main(result: str, *addresses: str) -> None:
    attempts = dict(ATTEMPTS)
    attempts |= {f"send to {one}": partial(send_to, one) for one in addresses}
    found = {name: outcome(attempt) for name, attempt in attempts.items()}
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
