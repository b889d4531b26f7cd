"""What a process learns of the others of its host."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.servers.process import unreadably_named
from tests.servers.reaper import watched

from cordata.pid import is_gone, start_of

#: Its main thread ends (_exit(2): the number of the system call), another thread stays.
_MAIN_THREAD_ENDS = """
import ctypes, platform, sys, threading
sys.stdin.readline()
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


def test_start_is_known_of_a_process_whose_name_is_no_text() -> None:
    with unreadably_named() as process:
        start = start_of(process.pid)
        assert start > 0
        assert not is_gone(process.pid, start) and is_gone(process.pid, start - 1)
        process.kill()
    assert start_of(process.pid) == 0
    assert is_gone(process.pid, start)


def test_process_is_not_gone_before_its_last_thread_has_ended() -> None:
    """Of a process that is killed, the main thread may end first: it is a zombie then, and another
    thread may still be committing."""
    child = subprocess.Popen([sys.executable, "-c", _MAIN_THREAD_ENDS], stdin=subprocess.PIPE)
    with watched(child) as process:
        start = start_of(process.pid)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        while "(zombie)" not in Path(f"/proc/{process.pid}/status").read_text():
            time.sleep(0.01)
        assert not is_gone(process.pid, start)
        process.kill()
        process.wait()
    assert is_gone(process.pid, start)
