"""The scripted peer speaks the protocol with itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.pool.peer import Listening, dialled

from cordata.core.pool.message import NIL, CallFrame, Ping, Pong, Result


def test_peers_meet_and_part(tmp_path: Path) -> None:
    with Listening(tmp_path / "pool.sock") as manager, dialled(manager.path) as client:
        client.raw(b"")
        side = manager.accept()
        with pytest.raises(TimeoutError):
            side.closed(0.01)
        client.send(Ping(id=1))
        assert side.expect(Ping) == Ping(id=1)
        side.send(Pong(id=1))
        side.send(Result(id=2))
        assert client.expect(Pong).id == 1
        with pytest.raises(AssertionError, match="result"):
            client.expect(Pong)
        client.send(CallFrame(id=3, command="x"))
        assert bytes(side.expect(CallFrame).payload) == bytes(NIL)
        client.close()
        assert side.closed()
        side.close()
