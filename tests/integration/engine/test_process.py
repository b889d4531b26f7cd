"""What a process learns of the others of its host."""

from __future__ import annotations

import subprocess
import sys

from tests.servers.reaper import watched

from cordata.pid import is_gone, start_of

_RENAMED = r"""
import sys
with open("/proc/self/comm", "wb") as file:
    file.write(b"\xff)")
print(flush=True)
sys.stdin.read()
"""


def test_start_is_known_of_a_process_whose_name_is_no_text() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _RENAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with watched(child) as process:
        assert process.stdout is not None
        process.stdout.readline()
        start = start_of(process.pid)
        assert start > 0
        assert not is_gone(process.pid, start) and is_gone(process.pid, start - 1)
        process.kill()
    assert start_of(process.pid) == 0
    assert is_gone(process.pid, start)
