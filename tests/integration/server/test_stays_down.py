"""A primary that is not started again is missed by nobody at once, so the server says it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.integration.server.running import forked_server


@pytest.mark.parametrize("restart", [False, True])
def test_server_says_that_the_primary_stays_down_unless_it_restarts(
    tmp_path: Path, restart: bool
) -> None:
    with forked_server(tmp_path, *(["--restart"] if restart else []), workers=1) as running:
        running.ready()
        os.kill(running.pid_of("primary"), signal.SIGKILL)
        if restart:
            running.until_logged(r"primary is ready \(pid", count=2)
        else:
            running.until_logged(r"the primary stays down, .*--restart starts it again")
        assert ("stays down" in running.log) is not restart
        running.signal(signal.SIGTERM)
        assert running.wait() == 1
