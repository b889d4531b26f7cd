"""Fixtures: the built packages, and hosts on which they are installed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.host.machine import CHECKOUT, Host, find_tree, wait_for
from tests.host.package import Packages, installed_tree, serves


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


@pytest.fixture(scope="session")
def image(debs: Packages) -> Path:
    """A tree with both packages. test_install and test_package install them in hosts that run."""
    return installed_tree(find_tree(), debs)


@pytest.fixture(scope="module")
def host(image: Path, debs: Packages) -> Iterator[Host]:
    """A host with both packages, shared by a module: each test leaves it serving."""
    with Host(image, binds=debs.binds()) as host:
        wait_for(lambda: serves(host), what="the service")
        yield host


@pytest.fixture(scope="module")
def hub(host: Host) -> Host:
    """The host with the demo hotel: secret demo, user demo with password demo."""
    host.run("alpinehub", "demo")
    return host
