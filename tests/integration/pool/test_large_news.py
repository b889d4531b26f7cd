"""Globals and sessions as large as they may be: no call fails by what its child has to hear."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.pool.test_together import together

from cordata.errors import FrameTooLarge
from cordata.pool import SyncClient

SETTINGS = """
max_frame_bytes = 100000
max_session_bytes = 90000
max_globals_bytes = 99000
"""


def test_call_comes_through_whatever_its_child_has_to_hear_first(tmp_path: Path) -> None:
    with together(tmp_path, SETTINGS) as all_, all_.worker():
        with SyncClient(all_.manager.path, timeout=20.0) as client:
            client.globals.set(large=b"g" * 98_900)
            assert client.execute("echo", 1) == 1
            session = client.sessions.create(data={"large": b"s" * 89_900}).id
            for number in range(3):
                client.globals.set(large=b"g" * (98_900 - number))
                payload = {"blob": b"p" * 99_000, "set": {}}
                before = client.execute("weigh", payload, session=session)
                assert before == [99_000, 89_900 - number, 98_900 - number]
                client.sessions.update(session, set={"large": b"s" * (89_899 - number)})
            with pytest.raises(FrameTooLarge):
                client.execute("echo", b"p" * 100_000)
            assert client.execute("echo", 2) == 2
