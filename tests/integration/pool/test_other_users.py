"""Users that are not the manager's own, and may open its socket: clients, and not all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from tests.integration.pool.managing import Manager, managed
from tests.integration.pool.peer import Peer

from cordata.core.pool.codec import encode
from cordata.core.pool.message import ErrorFrame, Hello, Ping, Pong, Welcome

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
NOBODY, OTHER = 65534, 65533


@contextmanager
def being(manager: Manager, user: int) -> Iterator[None]:
    """This process only: connections are of its effective user."""
    manager.path.chmod(0o666)
    for directory in (manager.path.parent, *manager.path.parent.parents):
        if directory.is_relative_to("/tmp/") and directory != Path("/tmp"):
            directory.chmod(0o755)
    os.setresuid(-1, user, -1)
    try:
        yield
    finally:
        os.setresuid(-1, 0, -1)


def connected(peer: Peer) -> bool:
    """Whether it was taken as a client; else it was told that there is no place."""
    with suppress(OSError):  # it may have been closed already
        peer.raw(encode(Hello(role="client")) + encode(Ping(1)))
    answer = peer.any()
    if isinstance(answer, ErrorFrame):
        assert answer.code == "saturated"
        assert peer.closed()  # until then it has the place that it did not get
        return False
    assert isinstance(answer, Welcome)
    assert peer.expect(Pong).id == 1
    return True


def test_other_users_are_clients_and_nothing_else(tmp_path: Path) -> None:
    with managed(tmp_path, "[pool]\nmax_connections = 1\n") as manager, being(manager, NOBODY):
        for role in ("worker", "child", "operator"):
            with manager.dial() as peer:
                peer.send(Hello(role=role, name="0", pid=os.getpid()))
                assert peer.expect(ErrorFrame).code == "forbidden"
        with manager.dial() as peer, manager.dial() as second:
            assert connected(peer)
            assert second.expect(ErrorFrame).code == "saturated"  # not even asked who it is


def test_other_user_has_no_more_places_than_it_leaves_to_the_others(tmp_path: Path) -> None:
    with managed(tmp_path, "[pool]\nmax_connections = 16\n") as manager, ExitStack() as open_:

        def crowd(user: int) -> list[Peer]:
            """As many as it gets."""
            found: list[Peer] = []
            with being(manager, user):
                for _ in range(20):
                    peer = open_.enter_context(manager.dial())
                    if not connected(peer):
                        break
                    found.append(peer)
            return found

        greedy = crowd(NOBODY)
        assert len(greedy) == 8
        assert len(crowd(OTHER)) == 4
        ours = [connected(open_.enter_context(manager.dial())) for _ in range(5)]
        assert ours == [True, True, True, True, False]
        assert manager.log.count("has 8 connections") == 1
        for peer in greedy:
            peer.close()
        manager.until(lambda found: found["connections"]["open"] < 10, "they are gone")
        assert len(crowd(NOBODY)) == 4
