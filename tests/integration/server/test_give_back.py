"""What takes longer than a stop waits is cut off, and events are given back: no failed stop, no
attempt.
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

from tests.integration.server.running import PATIENCE_S, forked_server

APP = "tests.integration.server.patient:app"


def test_stop_ends_well_and_events_are_given_back_when_their_handlers_outlast_the_stop(
    tmp_path: Path,
) -> None:
    config, flag = tmp_path / "cordata.toml", tmp_path / "flag"
    config.write_text("[worker]\nstop_timeout_s = 9.0\n[primary]\nstop_timeout_s = 9.0\n")
    options = ["--restart", "--config", str(config)]
    environment = {"PATIENT_FLAG": str(flag)}
    with forked_server(
        tmp_path / "s", *options, app=APP, workers=1, environment=environment
    ) as running:
        running.until_logged("handler begins")
        running.until_logged("subscription begins")
        running.until_logged("periodic begins")
        running.until_logged("backfill begins")
        flag.touch()
        url = urlsplit(running.ready())
        with socket.create_connection((url.hostname, url.port), timeout=PATIENCE_S) as client:
            client.sendall(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
            running.until_logged("a request hangs")
            os.kill(running.pid_of("worker@0"), signal.SIGTERM)
            running.until_logged("worker@0 exited with 0")
        running.until_logged("stop_timeout_s is too short: 1 request and 1 connection cut")
        running.until_logged(r"request GET /hang is cut off after [0-9.]+ s \([\w-]+\)$")
        running.until_logged("handler handles attempt 1$")
        running.until_logged("subscription handles attempt 1$")
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        said = "\n".join(running.until_logged("handlers outlast .*stop_timeout_s", count=2))
        assert "patient.handle" in said and "patient.project" in said
        assert "not stopped after" not in running.log and "failed" not in running.log
