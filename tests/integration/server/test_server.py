"""`cordata server`: systemd's contract towards its children, and order in everything."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.integration.server.running import (
    PATIENCE_S,
    forked_server,
    free_address,
    refused,
    server,
    wait_gone,
)
from tests.notify import fill
from tests.servers.process import is_alive

REQUEST = b"GET /facts HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def address_of(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


def test_server_prints_one_ready_line_when_all_are_ready(tmp_path: Path) -> None:
    with server(tmp_path, workers=3) as running:
        url = running.ready()
        assert url.startswith("http://127.0.0.1:")
        pids = {name: running.pid_of(name) for name in ("primary", "worker@0", "worker@2")}
        assert len(set(pids.values())) == 3
        running.signal(signal.SIGINT)
        assert running.wait() == 0
        assert running.out == [f"ready {url}"]
        wait_gone(list(pids.values()))
        assert refused(url)


def test_server_speaks_systemds_contract_to_its_children(tmp_path: Path) -> None:
    with server(
        tmp_path, workers=1, environment={"LISTEN_FDS": "", "WATCHDOG_PID": "1"}
    ) as running:
        facts = running.get("/facts")
        environment = facts["environment"]
        assert facts["parent"] == running.process.pid
        assert facts["session"] == facts["pid"]
        assert environment["NOTIFY_SOCKET"].startswith("@cordata/")
        assert environment["WATCHDOG_USEC"] == "10000000"
        assert environment["WATCHDOG_PID"] == str(facts["pid"])
        assert environment["STATE_DIRECTORY"] == str(tmp_path)
        # Taken over and unset, so that no grandchild believes they are its own.
        assert not [name for name in environment if name.startswith("LISTEN_")]
        assert facts["descriptors"]["3"].startswith("socket:")
        assert facts["descriptors"]["0"] == "/dev/null"


def test_children_may_open_what_their_unit_allows_when_the_shell_says_less(tmp_path: Path) -> None:
    with server(tmp_path, workers=1, prefix=("prlimit", "--nofile=256:16384")) as running:
        assert running.get("/facts")["descriptor_limit"] == 8192


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_server_stops_workers_before_the_primary_when_signalled(
    tmp_path: Path, number: signal.Signals
) -> None:
    with server(tmp_path) as running:
        running.ready()
        running.signal(number)
        running.signal(number)
        assert running.wait() == 0
        w0, w1, primary = running.order(
            "worker@0 exited with 0", "worker@1 exited with 0", "primary is stopping"
        )
        assert max(w0, w1) < primary
        assert running.log.count("stopping: ") == 1


def test_server_answers_what_it_has_in_hand_when_stopped(tmp_path: Path) -> None:
    with forked_server(tmp_path, workers=1) as running:
        host = running.ready().removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=PATIENCE_S)
        connection.request("GET", "/slow")
        running.get("/facts")  # the slow one has been accepted before this one
        running.signal(signal.SIGTERM)
        response = connection.getresponse()
        assert response.status == 200
        response.read()
        connection.close()
        assert running.wait() == 0


def test_server_answers_connections_that_wait_when_stopped(tmp_path: Path) -> None:
    with forked_server(tmp_path, workers=1) as running:
        where = address_of(running.ready())
        worker = running.pid_of("worker@0")
        os.kill(worker, signal.SIGSTOP)
        waiting = [socket.create_connection(where, PATIENCE_S) for _ in range(30)]
        for sock in waiting:
            sock.sendall(REQUEST)
        os.kill(worker, signal.SIGCONT)
        running.signal(signal.SIGTERM)
        for sock in waiting:
            with sock:
                assert sock.recv(12) == b"HTTP/1.1 200"
        assert running.wait() == 0


def test_server_resets_no_connection_when_stopped(tmp_path: Path) -> None:
    """They are answered or refused: none waits for a worker that has stopped."""
    with forked_server(tmp_path) as running:
        where = address_of(running.ready())

        def call_until_refused(_: int) -> int:
            resets = 0
            while True:
                try:
                    with socket.create_connection(where, PATIENCE_S) as sock:
                        sock.sendall(REQUEST)
                        resets += not sock.recv(12)
                except ConnectionRefusedError:
                    return resets
                except (ConnectionResetError, BrokenPipeError):
                    resets += 1

        with ThreadPoolExecutor(20) as threads:
            resets = threads.map(call_until_refused, range(20))
            running.get("/facts")
            running.signal(signal.SIGTERM)
            # One may come after the last look at the queue.
            assert sum(resets) <= 1
        assert running.wait() == 0


def test_server_runs_on_and_ends_with_1_when_a_worker_crashes(tmp_path: Path) -> None:
    with forked_server(tmp_path) as running:
        running.ready()
        os.kill(running.pid_of("worker@0"), signal.SIGKILL)
        told = (
            r"worker@0 \(pid \d+\) was killed by SIGKILL; it is not started again, see --restart$"
        )
        running.until_logged(told)
        for _ in range(4):
            assert running.get("/facts")["pid"] == running.pid_of("worker@1")
        running.signal(signal.SIGINT)
        assert running.wait() == 1


def test_server_starts_a_crashed_worker_again_when_told_to_restart(tmp_path: Path) -> None:
    with forked_server(tmp_path, "--restart") as running:
        running.ready()
        first = running.pid_of("worker@0")
        os.kill(first, signal.SIGKILL)
        running.until_logged(r"worker@0 .* was killed by SIGKILL; starts again in 0\.")
        running.until_logged(r"worker@0 is ready \(pid", count=2)
        assert running.pid_of("worker@0") != first
        running.signal(signal.SIGINT)
        assert running.wait() == 1
        assert len(running.out) == 1


def test_server_goes_on_when_a_directory_of_a_crashed_worker_cannot_be_made(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    with forked_server(state, "--restart") as running:
        running.ready()
        (state / "run").rename(state / "former")
        (state / "run").write_text("a file where the directory would be")
        os.kill(running.pid_of("worker@0"), signal.SIGKILL)
        running.until_logged("worker@0 cannot be started: .*run cannot be created.*starts again in")
        assert running.get("/facts")["pid"] == running.pid_of("worker@1")
        (state / "run").unlink()
        (state / "former").rename(state / "run")
        running.until_logged(r"worker@0 is ready \(pid", count=2)
        running.signal(signal.SIGTERM)
        assert running.wait() == 1


@pytest.mark.parametrize("name", ["worker@0", "primary"])
def test_server_starts_a_terminated_child_again_when_told_to_restart(
    tmp_path: Path, name: str
) -> None:
    """So that one worker after the other can be rolled."""
    with forked_server(tmp_path, "--restart") as running:
        running.ready()
        first = running.pid_of(name)
        os.kill(first, signal.SIGTERM)
        running.until_logged(rf"{name} exited with 0; starts again in 0\.")
        running.until_logged(rf"{name} is ready \(pid", count=2)
        assert running.pid_of(name) != first and running.get("/facts")["pid"]
        running.signal(signal.SIGINT)
        assert running.wait() == 0


def test_server_stops_the_rest_when_no_worker_is_left(tmp_path: Path) -> None:
    with forked_server(tmp_path) as running:
        running.ready()
        primary = running.pid_of("primary")
        for name in ("worker@0", "worker@1"):
            os.kill(running.pid_of(name), signal.SIGKILL)
        assert running.wait() == 1
        assert running.order("primary exited with 0")
        assert not is_alive(primary)


def test_watchdog_kills_a_stopped_worker(tmp_path: Path) -> None:
    with forked_server(tmp_path, "--watchdog", "3", "--restart") as running:
        running.ready()
        victim = running.pid_of("worker@0")
        os.kill(victim, signal.SIGSTOP)
        running.until_logged("worker@0 missed its watchdog: SIGABRT")
        running.until_logged(r"worker@0 .* was killed by SIG(KILL|ABRT) \(missed its watchdog\)")
        running.until_logged(r"worker@0 is ready \(pid", count=2)
        running.signal(signal.SIGINT)
        assert running.wait() == 1


def test_watchdog_leaves_a_trace_when_the_loop_hangs(tmp_path: Path) -> None:
    with server(tmp_path, "--watchdog", "3", workers=1) as running:
        host = running.ready().removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=PATIENCE_S)
        connection.request("GET", "/hang")
        running.until_logged("worker@0 missed its watchdog: SIGABRT")
        assert running.wait() == 1
        connection.close()
        assert "Fatal Python error: Aborted" in running.log
        assert "tiny.py" in running.log
        assert "was killed by SIGABRT (missed its watchdog)" in running.log


def test_workers_serve_while_the_server_stands_still(tmp_path: Path) -> None:
    """As after Ctrl-Z: it does not read what they notify."""
    with forked_server(tmp_path) as running:
        address = running.get("/facts")["environment"]["NOTIFY_SOCKET"]
        workers = [running.pid_of(name) for name in ("worker@0", "worker@1")]
        running.signal(signal.SIGSTOP)
        fill(address)
        for pid in workers:
            os.kill(pid, signal.SIGHUP)  # it notifies of each reload
        running.until_logged("worker@0 .*reloaded")
        running.until_logged("worker@1 .*reloaded")
        assert running.get("/facts")["pid"] in workers
        running.signal(signal.SIGCONT)
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_server_is_ready_for_its_manager_when_that_reads_later(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(PATIENCE_S)
        fill(address)
        environment = {"NOTIFY_SOCKET": address}
        with server(tmp_path / "state", "--watchdog", "0", environment=environment) as running:
            running.ready()
            while (message := manager.recv(4096)) == b"X_NOTHING=1":
                pass
            assert message.startswith(b"READY=1\n")
            running.signal(signal.SIGTERM)
            assert running.wait() == 0
            assert manager.recv(4096).startswith(b"STOPPING=1")


def test_watchdog_does_not_count_the_time_for_which_the_server_stood_still(tmp_path: Path) -> None:
    with forked_server(tmp_path, "--watchdog", "2", "--restart") as running:
        address = running.get("/facts")["environment"]["NOTIFY_SOCKET"]
        stays, leaves = running.pid_of("worker@0"), running.pid_of("worker@1")
        running.signal(signal.SIGSTOP)
        fill(address)
        begun = time.monotonic()
        while time.monotonic() - begun < 3.0:  # longer than the watchdog waits
            running.get("/facts")
        running.signal(signal.SIGCONT)
        os.kill(leaves, signal.SIGTERM)
        running.until_logged(r"worker@1 is ready \(pid", count=2)
        assert running.pid_of("worker@0") == stays
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        assert "missed its watchdog" not in running.log


def test_children_die_with_the_server_when_it_is_killed(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        url = running.ready()
        pids = [running.pid_of(name) for name in ("primary", "worker@0", "worker@1")]
        running.process.kill()
        wait_gone([running.process.pid, *pids])
        assert refused(url)


def test_server_serves_all_addresses_when_several_are_given(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    options = ("--listen", "127.0.0.1:0", "--listen", str(path), "--listen", "[::1]:0")
    with forked_server(tmp_path / "state", *options) as running:
        first, second, third = running.ready().split()
        assert second == f"unix:{path}"
        assert third.startswith("http://[::1]:")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))
            sock.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        assert refused(first)
        assert not path.exists()


def test_server_fails_with_a_hint_when_the_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with forked_server(tmp_path, "--listen", address) as running:
            assert running.wait() == 1
            assert f"cannot listen on {address}: Address already in use (stop what" in running.log
            assert "Traceback" not in running.log


def test_server_ends_with_78_when_the_application_cannot_be_imported(tmp_path: Path) -> None:
    with server(tmp_path, app="no_such_module:app") as running:
        assert running.wait() == 78
        assert "no module 'no_such_module'" in running.log
        assert "Traceback" not in running.log
        assert running.out == []


def test_server_works_as_pid_1_and_reaps_foreign_zombies(tmp_path: Path) -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.spawnvp(os.P_WAIT, "unshare", [*unshare, "true"]) != 0:
        pytest.skip("may not make a PID namespace")
    with server(tmp_path, workers=1, prefix=unshare) as running:
        assert running.get("/facts")["parent"] == 1
        for _ in range(3):
            running.get("/orphan")
        seen: set[int] = set()
        # They end within 50 ms; each look is a request, so this waits for the fact, not for a time.
        while (
            len(pids := running.get("/zombies")["pids"]) > 3 or running.get("/zombies")["zombies"]
        ):
            seen.update(pids)
        assert seen or pids == [1, *pids[1:]]
        # unshare passes no signals on: speak to PID 1 of the namespace.
        children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
        os.kill(int(children.read_text().split()[0]), signal.SIGTERM)
        assert running.wait() == 0


def test_server_goes_on_when_no_process_can_be_started(tmp_path: Path) -> None:
    """In a PID namespace whose first process has ended there can be no other one."""
    unshare = ["unshare", "--pid"]
    if os.spawnvp(os.P_WAIT, "unshare", [*unshare, "true"]) != 0:
        pytest.skip("may not make a PID namespace")
    with server(tmp_path, "--restart", "--no-preload", prefix=unshare) as running:
        told = r"worker@0 cannot be started: Cannot allocate memory; starts again in \d"
        running.until_logged(told, count=2)
        running.signal(signal.SIGTERM)
        assert running.wait() == 1
        assert "Traceback" not in running.log


def left_behind(directory: Path, path: str, count: int) -> Path:
    """A state directory with events that no engine has seen."""
    config = directory / "http-only.toml"
    config.write_text('[worker]\nservices = ["http"]\n')
    state = directory / "state"
    with forked_server(state, "--config", str(config), workers=1) as running:
        for _ in range(count):
            running.get(path)
        running.signal(signal.SIGINT)
        assert running.wait() == 0
        assert "handled" not in running.log
    return state


def test_server_in_test_mode_handles_what_is_there_and_exits(tmp_path: Path) -> None:
    state = left_behind(tmp_path, "/publish", 7)
    with forked_server(state, "--test-mode", workers=2) as running:
        assert running.wait() == 0
        assert running.out == []
        assert running.log.count("handled thing.done") == 7
        assert "Traceback" not in running.log


def test_server_in_test_mode_ends_with_1_when_something_went_to_the_dead_letter(
    tmp_path: Path,
) -> None:
    state = left_behind(tmp_path, "/publish-bad", 1)
    with forked_server(state, "--test-mode", workers=1) as running:
        assert running.wait() == 1
        assert "1 message went to the dead letter" in running.log
        assert "--restart" not in running.log


def test_server_answers_503_while_the_store_cannot_be_opened_and_heals(tmp_path: Path) -> None:
    (tmp_path / "cordata.db").write_bytes(b"no database" * 1000)
    address = free_address()
    with forked_server(tmp_path, "--listen", address, workers=1) as running:
        running.until_logged("worker@0 store: the store cannot be opened")
        connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
        connection.request("GET", "/facts")
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["error"]) == (503, "store_unavailable")
        assert int(response.headers["Retry-After"]) >= 1
        connection.close()
        assert running.out == []
        (tmp_path / "cordata.db").unlink()
        running.until_logged("worker@0 store: the store is open")
        running.ready()
        assert running.get("/facts")["pid"] == running.pid_of("worker@0")
        running.signal(signal.SIGINT)
        assert running.wait() == 0
