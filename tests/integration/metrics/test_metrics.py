"""The metrics of a real `cordata server`: what was done is what is counted, whatever is killed."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import waiting
from tests.integration.cli.command import cordata, write_config
from tests.integration.metrics.scrape import OPENMETRICS, PATIENCE_S, Scrape, get, scrape, until
from tests.integration.server.running import Server, forked_server, free_address, wait_gone
from tests.servers.process import free_port
from tests.servers.redis import RedisServer

from cordata.metrics.file import read_all
from cordata.metrics.series import REQUESTS as REQUESTS_FAMILY

APP = "tests.integration.metrics.counted:app"
REQUESTS = "cordata_http_requests_total"
ATTEMPTS = "cordata_handler_attempts_total"


@contextmanager
def counted(
    tmp_path: Path, *options: str, listen: str = "", more: str = ""
) -> Iterator[tuple[Server, str]]:
    """A server with two workers, and where its metrics are. `more`: other settings."""
    listen = listen or f"127.0.0.1:{free_port()}"
    text = f'[metrics]\nlisten = "{listen}"\n{more}'
    config = write_config(tmp_path, text, APP)
    with forked_server(None, "--config", str(config), *options, app=None) as running:
        running.ready()
        yield running, listen


def ask(running: Server, path: str, method: str = "GET", count: int = 1) -> None:
    """Requests on a fresh connection each, so that all workers get some."""
    host = running.ready().removeprefix("http://")
    for _ in range(count):
        connection = http.client.HTTPConnection(host, timeout=PATIENCE_S)
        connection.request(method, path)
        connection.getresponse().read()
        connection.close()


def garble(running: Server) -> None:
    """A request that no application sees."""
    host, _, port = running.ready().removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nhost : a\r\n\r\n")
        assert b" 400 " in sock.recv(4096).split(b"\r\n")[0]


def test_scrape_equals_what_was_done(tmp_path: Path) -> None:
    with counted(tmp_path) as (running, listen):
        ask(running, "/fine", count=30)
        ask(running, "/fine", "POST", count=5)
        ask(running, "/fine", "PROPFIND", count=2)
        ask(running, "/fail", count=3)
        garble(running)
        ask(running, "/publish/thing.done", "POST", count=4)
        ask(running, "/publish/thing.refused", "POST")
        ask(running, "/append", "POST", count=2)
        ask(running, "/double/4", count=6)
        ask(running, "/double")

        def is_complete(found: Scrape) -> bool:
            return (
                found.total(REQUESTS) == 55
                and found.total(ATTEMPTS, group="counted.done", outcome="done") == 4
                and found.total(ATTEMPTS, group="counted.refused", outcome="dead") == 1
                and found.total(ATTEMPTS, group="counted.followed", outcome="done") == 2
                and found.total("cordata_queue_messages", state="dead") == 1
            )

        found = until(listen, is_complete, "all that was done is counted")
        assert found.total(REQUESTS, method="GET", code="2xx") == 30 + 7
        assert found.total(REQUESTS, method="POST", code="2xx") == 5 + 5 + 2
        assert found.total(REQUESTS, method="other", code="2xx") == 2
        assert found.total(REQUESTS, method="GET", code="5xx") == 3
        assert found.total(REQUESTS, method="GET", code="4xx") == 1
        assert found.total("cordata_http_request_duration_seconds_count") == 55
        assert found.total("cordata_http_request_duration_seconds_bucket", le="+Inf") == 55
        assert found.total("cordata_http_request_duration_seconds_sum") > 0
        # Each event of the subscription fails once.
        assert found.total(ATTEMPTS, group="counted.followed", outcome="retry") == 2
        assert found.total(ATTEMPTS) == 9
        assert found.total("cordata_handler_duration_seconds_count") == 9
        calls = "cordata_pool_calls_total"
        assert found.total(calls, command="double", outcome="done") == 6
        assert found.total(calls, command="double", outcome="failed") == 1
        assert found.total(calls) == 7
        assert found.total("cordata_pool_run_seconds_count") == 7
        assert found.total("cordata_pool_wait_seconds_count") == 7
        # Those of the workers, and the migrations of the primary.
        assert found.total("cordata_store_commit_duration_seconds_count", unit="primary") > 0
        units = {sample.labels["unit"] for sample in found.samples if "unit" in sample.labels}
        assert units == {"worker@0", "worker@1", "primary"}
        assert found.values("cordata_unit_up") == [1.0, 1.0, 1.0]
        assert found.total("cordata_queue_messages", group="counted.refused", state="dead") == 1
        assert found.total("cordata_queue_messages", group="counted.done") == 0
        assert found.values("cordata_store_up") == [1.0]
        assert found.values("cordata_mail_waiting") == [0.0]
        for name in ("resident_memory_bytes", "cpu_seconds_total", "open_fds", "max_fds"):
            values = found.values(f"cordata_process_{name}")
            assert len(values) == 3 and min(values) > 0, name
        [build] = [one for one in found.samples if one.name == "cordata_build_info"]
        assert build.labels["app"] == "counted"
        # No path, no payload, no address.
        _, _, text = get(listen)
        assert "fine" not in text and "publish" not in text and "127.0.0.1" not in text

        same = scrape(listen, accept=OPENMETRICS)
        assert same.total(REQUESTS) == 55
        assert {one.name for one in same.samples} == {one.name for one in found.samples}

        assert get(listen, "/")[0] == 404
        assert get(listen, method="POST")[0] == 405
        status, _, text = get(listen, method="HEAD")
        assert status == 200 and text == ""


def test_counts_are_neither_lost_nor_doubled_when_a_worker_is_killed(tmp_path: Path) -> None:
    with counted(tmp_path, "--restart") as (running, listen):
        ask(running, "/fine", count=20)
        until(listen, lambda found: found.total(REQUESTS) == 20, "20 requests")
        for worker in ("worker@0", "worker@1"):
            pid = running.pid_of(worker)
            os.kill(pid, signal.SIGKILL)
            wait_gone([pid])
            # At once, by the other worker.
            assert scrape(listen).total(REQUESTS) == 20
            running.until_logged(rf"{worker} is ready \(pid", count=2)
            found = until(listen, lambda found: sum(found.values("cordata_unit_up")) == 3, "three")
            assert found.total(REQUESTS) == 20
        ask(running, "/fine", count=10)
        found = until(listen, lambda found: found.total(REQUESTS) >= 30, "30 requests")
        assert found.total(REQUESTS) == 30
        assert found.total("cordata_http_request_duration_seconds_count") == 30


def test_gauges_end_with_their_process_and_counters_stay(tmp_path: Path) -> None:
    with counted(tmp_path) as (running, listen):
        ask(running, "/fine", count=6)
        until(listen, lambda found: found.total(REQUESTS) == 6, "6 requests")
        pid = running.pid_of("worker@1")
        os.kill(pid, signal.SIGKILL)
        wait_gone([pid])
        found = scrape(listen)
        assert found.values("cordata_unit_up", unit="worker@1") == [0.0]
        assert found.values("cordata_http_connections", unit="worker@1") == []
        assert found.values("cordata_process_open_fds", unit="worker@1") == []
        assert len(found.values("cordata_http_connections", unit="worker@0")) == 1
        assert found.total(REQUESTS) == 6


def test_unix_socket_is_served_by_one_worker_and_then_by_another(tmp_path: Path) -> None:
    group = next((gid for gid in os.getgroups() if gid != os.getegid()), os.getegid())
    if os.geteuid() == 0:
        group = 65534  # root may choose any
    directory = tmp_path / "open"
    directory.mkdir()
    os.chown(directory, -1, group)
    directory.chmod(0o2750)
    path = directory / "metrics.sock"
    with counted(tmp_path, listen=str(path)) as (running, listen):
        ask(running, "/fine", count=4)
        until(listen, lambda found: found.total(REQUESTS) == 4, "4 requests")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(listen)
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        # The group is the directory's, if that has the set-group-ID bit.
        assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_gid) == (0o660, group)
        owner = struct.unpack("3i", credentials)[0]
        assert owner in (running.pid_of("worker@0"), running.pid_of("worker@1"))
        os.kill(owner, signal.SIGKILL)
        wait_gone([owner])
        found = until(listen, lambda found: found.total("cordata_unit_up") == 2, "the other one")
        assert found.total(REQUESTS) == 4
        running.signal(signal.SIGTERM)
        running.wait()
    assert not path.exists()


def test_runs_of_a_job_are_counted_and_stay_when_it_has_ended(tmp_path: Path) -> None:
    with counted(tmp_path) as (_, listen):
        for _ in range(2):  # the failed one again
            cordata("job", "nightly", "--config", str(tmp_path / "cordata.toml"))
        found = scrape(listen)
        runs = "cordata_job_runs_total"
        assert found.values(runs, job_name="nightly", outcome="done", unit="job@nightly") == [1.0]
        assert found.values(runs, job_name="nightly", outcome="failed") == [2.0]
        assert found.total("cordata_job_duration_seconds_count", job_name="nightly") == 3
        ended = found.values("cordata_job_last_run_timestamp_seconds", outcome="done")
        assert ended[0] > 1.7e9
        # It has ended in order.
        assert found.values("cordata_unit_up", unit="job@nightly") == []


def test_scrape_says_whether_redis_is_there(tmp_path: Path) -> None:
    with RedisServer() as redis:
        with counted(tmp_path, more=f'[broker]\nurl = "{redis.url}"\n') as (_, listen):

            def wait(value: float, what: str) -> None:
                until(listen, lambda scrape: scrape.values("cordata_redis_up") == [value] * 2, what)

            wait(1.0, "both use it")
            redis.kill()
            wait(0.0, "both miss it")
            redis.start()
            wait(1.0, "both use it again")


def test_503_is_counted_while_the_store_cannot_be_opened(tmp_path: Path) -> None:
    text = f'[store]\nurl = "postgresql://a@127.0.0.1:{free_port()}/a"\n'
    config, address = write_config(tmp_path, text, APP), free_address()
    options = ("--config", str(config), "--listen", address)
    with forked_server(None, *options, app=None, workers=1) as running:
        running.until_logged("the store cannot be opened")
        connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
        for _ in range(3):
            connection.request("GET", "/fine")
            response = connection.getresponse()
            response.read()
            assert response.status == 503
        connection.close()

        def counted() -> float:
            found = read_all(tmp_path / "run" / "metrics")
            series = REQUESTS_FAMILY.series(method="GET", code="5xx")
            return sum(sum(one.values.get(series, ())) for one in found)

        waiting.until(lambda: counted() == 3, what="three")


def test_nothing_is_counted_when_metrics_are_off(tmp_path: Path) -> None:
    text = "[metrics]\nenabled = false\n"
    config = write_config(tmp_path, text, APP)
    with forked_server(None, "--config", str(config), app=None) as running:
        ask(running, "/fine")
        assert not (tmp_path / "run" / "metrics").exists()
        done = cordata("status", "--json", "--config", str(config))
        assert json.loads(done.stdout)["http"] == []


def test_status_has_rate_and_latency_of_each_worker(tmp_path: Path) -> None:
    with counted(tmp_path) as (running, _):
        rates: list[dict[str, Any]] = []

        def have_rates() -> bool:
            # Again each time: on a busy machine they may be older than what the rate looks back.
            ask(running, "/fine", count=20)
            ask(running, "/fail", count=2)
            done = cordata("status", "--json", "--config", str(tmp_path / "cordata.toml"))
            rates[:] = json.loads(done.stdout)["http"]
            return any(one["errors_per_s"] > 0 for one in rates)

        waiting.until(have_rates, what="errors in the status")
        assert [one["unit"] for one in rates] == ["worker@0", "worker@1"]
        for one in rates:
            if one["requests_per_s"] > 0:
                assert 0 < one["p50_ms"] <= one["p99_ms"] <= 10_000
        assert sum(one["requests_per_s"] for one in rates) > 0
        shown = cordata("status", "--config", str(tmp_path / "cordata.toml")).stdout
        assert "IN-FLIGHT" in shown and "worker@1" in shown


def test_address_that_others_can_reach_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path, '[metrics]\nlisten = "0.0.0.0:9464"\n', APP)
    done = cordata("primary", "--config", str(config))
    assert done.returncode == 78
    assert "[metrics] listen: must be a loopback address and a port" in done.stderr
