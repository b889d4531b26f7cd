"""The nginx sample in front of the unix socket: TLS, and what the application learns."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.integration.http.live import Live, live
from tests.servers.process import free_port
from tests.servers.reaper import watched
from tests.unit.http.wire import Recorder
from tests.waiting import until_async

from cordata.config.sections import HttpConfig
from cordata.http import HttpServer

SAMPLE = Path(__file__).resolve().parents[3] / "packaging/examples/nginx.conf"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin")
pytestmark = pytest.mark.skipif(
    NGINX is None or shutil.which("openssl") is None, reason="nginx and openssl are not installed"
)


def write_config(where: Path, unix: Path) -> tuple[int, int]:
    """The sample with our socket, ports and certificate. Returns the ports of HTTP and HTTPS."""
    subject = "/CN=hub.example.com"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    argv += ["-nodes", "-days", "2"]
    argv += ["-subj", subject, "-addext", "subjectAltName=DNS:hub.example.com"]
    argv += ["-keyout", str(where / "key.pem"), "-out", str(where / "cert.pem")]
    subprocess.run(argv, check=True, capture_output=True)
    plain, tls = free_port(), free_port()
    site = SAMPLE.read_text()
    for old, new in (
        ("/run/cordata/http.sock max", f"{unix} max"),
        ("    listen [::]:80;\n", ""),
        ("    listen [::]:443 ssl;\n", ""),
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("listen 443 ssl;", f"listen 127.0.0.1:{tls} ssl;"),
        ("/var/log/nginx/access.log", f"{where}/access.log"),
        ("/etc/ssl/hub.example.com/fullchain.pem", str(where / "cert.pem")),
        ("/etc/ssl/hub.example.com/privkey.pem", str(where / "key.pem")),
    ):
        assert old in site, old
        site = site.replace(old, new)
    (where / "nginx.conf").write_text(
        "daemon off; master_process off; worker_processes 1;\n"
        f"pid {where}/pid; error_log {where}/error.log;\nevents {{ worker_connections 64; }}\n"
        f"http {{ access_log off; client_body_temp_path {where}/body; proxy_temp_path {where}/p;\n"
        f"fastcgi_temp_path {where}/f; uwsgi_temp_path {where}/u; scgi_temp_path {where}/s;\n"
        f"{site}\n}}\n"
    )
    return plain, tls


@asynccontextmanager
async def nginx(where: Path, unix: Path) -> AsyncIterator[tuple[int, int]]:
    """A throw-away nginx with its own prefix."""
    plain, tls = write_config(where, unix)
    starting = asyncio.create_subprocess_exec(
        str(NGINX), "-p", str(where), "-c", str(where / "nginx.conf"), stderr=subprocess.DEVNULL
    )
    process = watched(await starting)
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", tls)
                except OSError:
                    assert process.returncode is None, (where / "error.log").read_text()
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    break
        yield plain, tls
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def site(where: Path, app: Recorder) -> AsyncIterator[tuple[Live, httpx.AsyncClient, int]]:
    unix = where / "http.sock"
    config = HttpConfig(drain_s=0, max_body_bytes=2_000_000)
    async with live(app, config, unix=unix) as server, nginx(where, unix) as (plain, tls):
        context = ssl.create_default_context(cafile=str(where / "cert.pem"))
        transport = httpx.AsyncHTTPTransport(verify=context)
        async with httpx.AsyncClient(
            timeout=60,
            base_url=f"https://127.0.0.1:{tls}",
            headers={"host": "hub.example.com"},
            transport=transport,
        ) as client:
            yield server, client, plain


async def ask(client: httpx.AsyncClient, method: str, url: str, **more: object) -> httpx.Response:
    extensions = {"sni_hostname": "hub.example.com"}
    return await client.request(method, url, extensions=extensions, **more)  # type: ignore[arg-type]


async def test_requests_pass_tls_and_the_unix_socket(tmp_path: Path) -> None:
    app = Recorder()
    async with site(tmp_path, app) as (server, client, _):
        big = bytes(range(256)) * 4000
        for body in (b"", b"hello", big):
            answer = await ask(client, "POST", "/x?y=1", content=body)
            assert (answer.status_code, answer.content) == (200, body)
        for _ in range(20):
            assert (await ask(client, "GET", "/")).status_code == 200
        assert server.server.state.connection_count == 1  # kept alive
        assert (await ask(client, "POST", "/", content=b"x" * 3_000_000)).status_code == 413
    scope = app.seen[0].scope
    assert scope["scheme"] == "https" and scope["client"] == ("127.0.0.1", 0)
    assert (b"host", b"hub.example.com") in scope["headers"]


async def test_client_cannot_forge_what_the_proxy_says(tmp_path: Path) -> None:
    app = Recorder()
    async with site(tmp_path, app) as (_, client, _):
        forged = {
            "x-forwarded-for": "203.0.113.9",
            "x-forwarded-proto": "http",
            "x-forwarded-host": "evil.example",
            "x-request-id": "forged",
        }
        answer = await ask(client, "GET", "/", headers=forged)
    scope = app.seen[0].scope
    assert (scope["scheme"], scope["client"][0]) == ("https", "127.0.0.1")
    assert (b"host", b"hub.example.com") in scope["headers"]
    assert len(answer.headers["x-request-id"]) == 32


async def test_plain_http_is_sent_to_https(tmp_path: Path) -> None:
    async with site(tmp_path, Recorder()) as (_, client, plain):
        answer = await client.get(f"http://127.0.0.1:{plain}/a")
        assert answer.headers["location"] == "https://hub.example.com/a"


async def test_requests_meet_no_error_while_workers_are_replaced(tmp_path: Path) -> None:
    """One listening socket, two services after each other on it: what a rolling restart is."""
    app = Recorder()
    async with site(tmp_path, app) as (server, client, _):
        assert (await ask(client, "GET", "/1")).status_code == 200
        server.stop.set()
        await until_async(lambda: not server.server.state.connection_count)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(ask(client, "GET", "/2"))
            await asyncio.sleep(0.1)
            successor = HttpServer(app, server.sockets, HttpConfig(drain_s=0))
            stop = asyncio.Event()
            run = group.create_task(successor.run(stop))
            assert (await waiting).status_code == 200
            stop.set()
            await run


async def test_forms_are_limited_and_nothing_else(tmp_path: Path) -> None:
    app = Recorder()
    async with site(tmp_path, app) as (_, client, _):
        spellings = ("/api/webhook/form/H/secret1", "/api/%77ebhook/form/H/secret1")
        answers = [await ask(client, "POST", spellings[one % 2]) for one in range(60)]
        statuses = [answer.status_code for answer in answers]
        assert statuses[:40] == [200] * 40 and 429 in statuses[40:]
        assert (await ask(client, "POST", "/api/webhook/wix/H/secret1")).status_code == 200


async def test_secrets_of_webhooks_are_not_in_the_access_log(tmp_path: Path) -> None:
    """Whatever stands around them, over TLS and before, served and refused."""
    secret, begin = "s3cr3t-0123456789012", "/api/webhook/wix/HOTEL"
    spellings = [
        secret,
        f"{secret}.",
        f"%22{secret}",
        f"{secret}%0A",
        f"{secret}\xff",
        f"{secret}/x",
    ]
    spellings += [f"{secret} x", f"{secret}\x01", secret.replace("-", "%2D")]
    paths = [f"{begin}/{one}" for one in spellings]
    paths += [f"/{begin}//{secret}", f"{begin}%2F{secret}", f"/api/%77ebhook/wix/HOTEL/{secret}"]
    paths += [f"/API/webhook/form/HOTEL/{secret}", f"/x{begin}/{secret}", f"{begin}/{secret}?a=b"]
    async with site(tmp_path, Recorder()) as (_, client, plain):
        context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        tls = client.base_url.port
        for path in paths:
            request = f"POST {path} HTTP/1.1\r\nHost: hub.example.com\r\nConnection: close\r\n\r\n"
            for port, over in ((plain, None), (tls, context)):
                name = "hub.example.com" if over else None
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=over, server_hostname=name
                )
                writer.write(request.encode("latin-1"))
                async with asyncio.timeout(60):
                    assert await reader.read()
                writer.close()
    logged = (tmp_path / "access.log").read_text()
    assert len(logged.splitlines()) == 2 * len(paths)
    assert [line for line in logged.splitlines() if "s3cr3t" in line] == []
    assert f"{begin}/..." in logged
