"""What a process learns of the others of its host."""

from __future__ import annotations

import subprocess
import sys

from tests.servers.reaper import watched

from cordata.broker.process import start_of

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
        assert start_of(process.pid) > 0
        process.kill()
    assert start_of(process.pid) == 0
