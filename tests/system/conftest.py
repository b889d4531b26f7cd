"""Fixtures: the built package, and hosts on which it is installed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.host.machine import CHECKOUT, Host, find_tree


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Booting a host takes root: others see these skipped, `make test` runs them with sudo."""
    if os.geteuid() != 0:
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.skip(reason="needs root: make test-system"))


@pytest.fixture(scope="session")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built from this checkout."""
    out = tmp_path_factory.mktemp("deb")
    command = [CHECKOUT / "packaging/build/deb", out]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def host(deb: Path) -> Iterator[Host]:
    """A host with the package installed, shared by a module: each test leaves it serving."""
    with Host(find_tree(), binds={deb: "/cordata.deb"}) as host:
        host.run("apt-get", "-qq", "-y", "install", "/cordata.deb")
        yield host


@pytest.fixture(scope="module")
def hub(host: Host) -> Host:
    """The host with the demo hotel: secret demo, user demo with password demo."""
    host.run("alpinehub", "demo")
    return host
