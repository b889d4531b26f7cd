"""Addresses become listening sockets as a socket unit would make them."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cordata.errors import ConfigError, CordataError
from cordata.supervisor.listen import bind, close, unix_path, url_of


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        ("127.0.0.1:0", "http://127.0.0.1:"),
        ("localhost:0", "http://"),
        ("[::1]:0", "http://[::1]:"),
        (":0", "http://[::]:"),
    ],
)
def test_bind_listens_without_blocking_when_the_address_is_tcp(address: str, prefix: str) -> None:
    sock = bind(address)
    try:
        assert url_of(sock).startswith(prefix)
        assert not sock.getblocking()
        assert not sock.get_inheritable()
        port = sock.getsockname()[1]
        host = "127.0.0.1" if address == ":0" else sock.getsockname()[0]
        socket.create_connection((host, port), timeout=5).close()
    finally:
        close([sock])


@pytest.mark.parametrize(
    "address", ["8080", "host", "host:", "host:http", "host:70000", "a:-1", "a..b:80"]
)
def test_bind_refuses_when_it_is_no_address(address: str) -> None:
    with pytest.raises(ConfigError, match="not an address"):
        bind(address)


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("[fe80::1%no-such-interface]:80", "an address of this host, or a name"),
        ("192.0.2.1:80", "an address of this host; `ip"),
        ("/no/such/directory/x.sock", "create its directory"),
        (f"/{'x' * 200}", "choose another --listen"),
    ],
)
def test_bind_names_the_next_step_when_it_cannot_listen(address: str, hint: str) -> None:
    with pytest.raises(CordataError, match="cannot listen on") as caught:
        bind(address)
    assert hint in (caught.value.hint or "")
    assert "None" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "path"),
    [("/x.sock", "/x.sock"), ("unix:x", "x"), ("./x", "./x"), ("h:1", None), ("[::1]:1", None)],
)
def test_unix_path_tells_paths_from_hosts(address: str, path: str | None) -> None:
    assert unix_path(address) == path


def test_bind_replaces_a_socket_file_when_nobody_answers_there(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    sock = bind(str(path))
    assert url_of(sock) == f"unix:{path}"
    with pytest.raises(CordataError, match="Address already in use"):
        bind(f"unix:{path}")
    close([sock])
    assert not path.exists()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "PATH"])
def test_close_refuses_new_connections_also_for_processes_that_share_the_socket(
    tmp_path: Path, address: str
) -> None:
    sock = bind(address.replace("PATH", str(tmp_path / "s")))
    where = sock.getsockname()
    with sock.dup():
        close([sock])
        with socket.socket(socket.AF_UNIX if address == "PATH" else socket.AF_INET) as client:
            with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
                client.connect(where)


def test_close_keeps_all_sockets_while_connections_wait_at_one() -> None:
    first, second = bind("127.0.0.1:0"), bind("127.0.0.1:0")
    with socket.create_connection(first.getsockname()), ThreadPoolExecutor(1) as thread:

        def accept() -> None:
            with socket.create_connection(second.getsockname()):
                for sock in (first, second):
                    sock.accept()[0].close()

        accepting = thread.submit(accept)
        close([first, second], patience_s=60)
        accepting.result()


def test_bind_does_not_wait_for_a_server_that_accepts_nothing(tmp_path: Path) -> None:
    path, errors = str(tmp_path / "s"), list[Exception]()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as waiting:
        server.bind(path)
        server.listen(0)
        waiting.connect(path)  # its queue is full now

        def try_it() -> None:
            try:
                bind(path)
            except CordataError as error:
                errors.append(error)

        thread = threading.Thread(target=try_it, daemon=True)
        thread.start()
        thread.join(20.0)
    assert [str(error) for error in errors] == [f"cannot listen on {path}: Address already in use"]


def test_bind_never_replaces_what_is_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(CordataError, match="cannot listen"):
        bind(str(path))
    assert path.read_text() == "precious"
