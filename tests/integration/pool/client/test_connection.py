"""A client and a child that the test plays: what the connection between them can suffer."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import pytest
import uvloop
from msgspec import Raw
from tests.waiting import until_async

from cordata.config.pool import PoolConfig
from cordata.errors import DeadlineExceeded, PoolClosed, QueueTimeout, SessionNotFound
from cordata.pool import Client
from cordata.pool.client.connection import MAX_TAKEN
from cordata.pool.shared import page, protocol
from cordata.pool.shared.page import ConnectionPage
from cordata.pool.shared.paths import ChildAddress, Place
from cordata.pool.shared.protocol import (
    Call,
    CommandOptions,
    Failure,
    Hello,
    Result,
    Welcome,
    batch,
    encode,
)

P = TypeVar("P", bound=protocol.Packet)
#: Only reached when it fails; the machine may be busy.
PATIENCE_S = 60.0
#: Of the test that runs.
_children: list[Child] = []


class Child:
    """Its files, and the one connection that it has."""

    def __init__(self, path: Path, generation: int) -> None:
        address = ChildAddress(path / "default", Place("0"), generation)
        address.directory.mkdir(parents=True, exist_ok=True)
        address.status.write_bytes(bytes(page.SIZE))
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.settimeout(PATIENCE_S)
        hidden = address.directory / ".hidden"
        self.listener.bind(str(hidden))
        self.listener.listen()
        self.socket = self.listener
        self.messages: list[protocol.FromClient] = []
        _children.append(self)
        hidden.rename(address.socket)

    def accept(self) -> None:
        """The hello of the next connection is answered."""
        self.socket = self.listener.accept()[0]
        self.socket.settimeout(PATIENCE_S)
        data, [file] = protocol.receive(self.socket, 1000)
        [hello] = protocol.from_client.decode(data)
        assert isinstance(hello, Hello)
        self.page = ConnectionPage(file)
        os.close(file)
        commands = {"echo": CommandOptions()}
        self.send(Welcome(1, commands, 1_000_000))

    def send(self, packet: protocol.Packet) -> None:
        protocol.send(self.socket, batch([encode(packet)]))

    def expect(self, kind: type[P]) -> P:
        while not self.messages:
            data, _ = protocol.receive(self.socket, 1_000_000)
            self.messages += protocol.from_client.decode(data)
        message = self.messages.pop(0)
        assert isinstance(message, kind), message
        return message

    def begin(self) -> Call:
        call = self.expect(Call)
        assert self.page.may_begin(call.number)
        return call

    def answer(self, call: Call) -> None:
        self.send(Result(call.number, Raw(b"\x01"), run_us=1))

    def die(self) -> None:
        self.listener.close()
        self.socket.close()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process has no descriptor left, inside."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def run(
    path: Path, test: Callable[[Client, Child], Awaitable[None]], loop: Any = uvloop.new_event_loop
) -> None:
    async def whole() -> None:
        options = {"rare": CommandOptions()}
        async with Client(path, timeout=PATIENCE_S, options=options) as client:
            await test(client, Child(path, 1))

    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(whole())
    finally:
        while _children:
            _children.pop().die()


async def answer_first(client: Client, child: Child) -> None:
    """The child takes the client's connection and answers its first call."""
    first = client.start("echo", 1)
    await asyncio.to_thread(child.accept)
    child.answer(await asyncio.to_thread(child.begin))
    assert await first == 1


@pytest.mark.parametrize("loop", [None, uvloop.new_event_loop])
def test_client_finds_that_a_child_died_which_had_not_read_all(tmp_path: Path, loop: Any) -> None:
    async def test(client: Client, child: Child) -> None:
        call = client.start("echo", 1)
        await asyncio.to_thread(child.accept)
        begun = await asyncio.to_thread(child.begin)
        call.cancel()  # the child does not read that any more
        child.answer(begun)
        child.die()
        await asyncio.sleep(0.05)
        following = Child(tmp_path, 2)
        accepted = asyncio.to_thread(following.accept)
        call = client.start("echo", 2)
        await accepted
        following.answer(await asyncio.to_thread(following.begin))
        assert await call == 1

    run(tmp_path, test, loop)


def test_client_connects_anew_to_a_child_that_lives(tmp_path: Path) -> None:
    async def test(client: Client, child: Child) -> None:
        call = client.start("echo", 1)
        await asyncio.to_thread(child.accept)
        child.socket.close()  # as of a client that did not read its answers
        await asyncio.to_thread(child.accept)
        child.answer(await asyncio.to_thread(child.begin))
        assert await call == 1

    run(tmp_path, test)


def test_call_that_did_not_run_says_nothing_of_how_long_its_command_takes(tmp_path: Path) -> None:
    async def test(client: Client, child: Child) -> None:
        call = client.start("echo", 1, session="gone")
        await asyncio.to_thread(child.accept)
        asked = await asyncio.to_thread(child.expect, Call)
        child.send(Failure(asked.number, SessionNotFound.code, "there is no session"))
        with pytest.raises(SessionNotFound):
            await call
        other = Child(tmp_path, 2)
        await asyncio.to_thread(other.accept)
        pool = client._dispatcher()._pools["default"]
        await until_async(lambda: sum(one.ready for one in pool.children) == 2)
        calls = [client.start("echo", number) for number in range(2)]
        for one in (child, other):  # if it took no time, one of them would get both
            one.answer(await asyncio.to_thread(one.begin))
        assert await asyncio.gather(*calls) == [1, 1]

    run(tmp_path, test)


def test_calls_of_one_turn_of_the_loop_come_in_one_packet(tmp_path: Path) -> None:
    async def test(client: Client, child: Child) -> None:
        call = client.start("echo", 0)
        await asyncio.to_thread(child.accept)
        child.answer(await asyncio.to_thread(child.begin))  # it takes no time, so many may follow
        assert await call == 1
        calls = [client.start("echo", number) for number in range(5)]
        packets = []
        for _ in range(2):
            await asyncio.sleep(0)
            data, _ = await asyncio.to_thread(protocol.receive, child.socket, 1_000_000)
            packets.append(protocol.from_client.decode(data))
        assert [len(messages) for messages in packets] == [1, 4], "the first call waits for nothing"
        answers = [
            encode(Result(message.number, Raw(encode(message.arguments[0]))))
            for message in packets[0] + packets[1]
            if isinstance(message, Call)
        ]
        protocol.send(child.socket, batch(answers))
        assert await asyncio.gather(*calls) == [0, 1, 2, 3, 4]

    run(tmp_path, test)


def test_client_without_descriptors_sends_a_large_call_later(tmp_path: Path) -> None:
    async def test(client: Client, child: Child) -> None:
        call = client.start("echo", 1)
        await asyncio.to_thread(child.accept)
        child.answer(await asyncio.to_thread(child.begin))
        assert await call == 1
        with no_descriptors():
            calls = [client.start("echo", bytes(100_000)), client.start("echo", 2)]
            for _ in range(3):
                await asyncio.sleep(0.01)
        for call in calls:
            child.answer(await asyncio.to_thread(child.begin))
            assert await call == 1

    run(tmp_path, test)


def test_client_without_descriptors_connects_later(tmp_path: Path) -> None:
    async def test(client: Client, child: Child) -> None:
        call = client.start("echo", 1)
        await asyncio.to_thread(child.accept)
        child.die()
        following = Child(tmp_path, 2)
        with no_descriptors():
            for _ in range(5):
                await asyncio.sleep(0.01)
        await asyncio.to_thread(following.accept)
        following.answer(await asyncio.to_thread(following.begin))
        assert await call == 1

    run(tmp_path, test)


def test_client_reads_the_largest_message_that_can_be_configured() -> None:
    [limits] = get_type_hints(PoolConfig, include_extras=True)["max_frame_bytes"].__metadata__
    assert limits.le + protocol.HEAD_BYTES <= MAX_TAKEN


def test_call_that_is_being_revoked_ends_when_its_client_is_closed(tmp_path: Path) -> None:
    async def test(client: Client, child: Child) -> None:
        await answer_first(client, child)
        call = client.start("echo", 2, timeout=0.1)
        await asyncio.to_thread(child.expect, Call)
        while child.page.may_begin(2):  # until it is revoked, of which the client learns later
            child.page._words[0] = 1
            await asyncio.sleep(0)
        await client.close()
        with pytest.raises((PoolClosed, DeadlineExceeded)):
            await asyncio.wait_for(call, PATIENCE_S)

    run(tmp_path, test)


def test_call_whose_child_died_says_that_it_ran_when_no_worker_is_left(tmp_path: Path) -> None:
    async def test(client: Client, child: Child) -> None:
        await answer_first(client, child)
        call = client.start("echo", 2, idempotent=True, timeout=0.1)
        child.begin()  # without a turn of the event loop, so in time
        child.die()
        with pytest.raises(DeadlineExceeded) as caught:
            await call
        assert caught.value.ran

    run(tmp_path, test)


def test_call_whose_child_died_has_begun_within_its_queue_timeout(tmp_path: Path) -> None:
    async def test(client: Client, child: Child) -> None:
        await answer_first(client, child)
        call = client.start("echo", 2, idempotent=True, queue_timeout=0.1)
        child.begin()  # without a turn of the event loop, so in time
        child.die()
        with pytest.raises(QueueTimeout):  # behind it
            await client.execute("rare", queue_timeout=0.1)
        following = Child(tmp_path, 2)
        await asyncio.to_thread(following.accept)
        following.answer(await asyncio.to_thread(following.begin))
        assert await call == 1

    run(tmp_path, test)


def test_call_whose_child_died_runs_again_though_its_worker_does_not_say_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue timeout ends while the worker is asked: it has begun."""

    async def test(client: Client, child: Child) -> None:
        await answer_first(client, child)
        silent = asyncio.get_running_loop().create_future
        monkeypatch.setattr(client._dispatcher().control, "ask", lambda path, request: silent())
        call = client.start("echo", 2, idempotent=True, queue_timeout=0.1)
        child.begin()  # without a turn of the event loop, so in time
        child.die()
        following = Child(tmp_path, 2)
        await asyncio.to_thread(following.accept)
        following.answer(await asyncio.to_thread(following.begin))
        assert await call == 1

    run(tmp_path, test)


def test_call_that_no_child_knows_delays_no_other(tmp_path: Path) -> None:
    async def test(client: Client, child: Child) -> None:
        rare = client.start("rare", 1)
        await asyncio.to_thread(child.accept)
        await asyncio.sleep(0.2)
        call = client.start("echo", 1)
        child.socket.setblocking(False)
        child.answer(child.begin())  # without a turn of the event loop
        assert await call == 1
        rare.cancel()

    run(tmp_path, test)


def test_calls_that_are_cancelled_in_any_order_do_not_begin(tmp_path: Path) -> None:
    async def test(client: Client, child: Child) -> None:
        calls = [client.start("echo", number) for number in range(2)]
        await asyncio.to_thread(child.accept)
        numbers = [(await asyncio.to_thread(child.expect, Call)).number for _ in calls]
        for call in reversed(calls):
            call.cancel()
        assert not any(child.page.may_begin(number) for number in numbers)

    run(tmp_path, test)
