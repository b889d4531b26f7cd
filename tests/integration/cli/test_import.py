"""Start-up time and memory: nothing heavy is imported before it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
HEAVY = (
    *("rich", "jinja2", "aiosmtplib", "phonenumbers", "nacl", "smtplib", "email.message"),
    *("http.client", "urllib.request", "importlib.metadata", "multiprocessing", "unittest"),
    *("concurrent.futures.process", "systemd.journal"),
)


def modules_after(code: str) -> set[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"}
    found = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(found.stdout.split())


def test_a_worker_imports_nothing_heavy_before_it_needs_it() -> None:
    found = modules_after("import cordata.cli.role, cordata.wiring.worker, cordata.http")
    assert found.isdisjoint(HEAVY), found & set(HEAVY)


def test_the_hub_brings_no_library_into_a_worker_before_it_is_used() -> None:
    found = modules_after("import alpinehub.app, cordata.wiring.worker, cordata.http")
    assert "alpinehub.webhooks.wix" in found
    heavy = {"lxml", "jinja2", "phonenumbers", "nacl", "psycopg", "rich", "starlette", "anyio"}
    heavy |= {"aiosmtplib", "smtplib", "email.message", "http.client", "tempfile"}
    assert found.isdisjoint(heavy), found & heavy


def test_the_supervisor_imports_neither_asyncio_nor_the_store() -> None:
    code = (
        "import cordata.cli.server, cordata.supervisor, cordata.systemd, cordata.config;"
        "cordata.config.choose_app(cordata.config.Document(None), 'shop:app');"
        "cordata.config.build(cordata.config.Document(None), None)"
    )
    found = modules_after(code)
    assert found.isdisjoint({"asyncio", "uvloop", "sqlite3", "cordata.app", "starlette"})
    assert found.isdisjoint(HEAVY)
