"""Fixtures: the built packages, and hosts on which they are installed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.host.machine import CHECKOUT, Host, find_tree
from tests.host.package import Packages, install


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Booting a host takes root: others see these skipped, `make test` runs them with sudo."""
    if os.geteuid() != 0:
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.skip(reason="needs root: make test-system"))


@pytest.fixture(scope="session")
def debs(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """The packages, built from this checkout."""
    out = tmp_path_factory.mktemp("deb")
    command = [CHECKOUT / "packaging/build/deb", out]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return Packages.of(out)


@pytest.fixture(scope="module")
def host(debs: Packages) -> Iterator[Host]:
    """A host with both packages installed, shared by a module: each test leaves it serving."""
    with Host(find_tree(), binds=debs.binds()) as host:
        install(host)
        yield host


@pytest.fixture(scope="module")
def hub(host: Host) -> Host:
    """The host with the demo hotel: secret demo, user demo with password demo."""
    host.run("alpinehub", "demo")
    return host
