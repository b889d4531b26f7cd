"""Fixtures: the built packages, and hosts on which they are installed.

The tests of two modules may run at once (`pytest -n 2 --dist loadfile`). One that is marked `alone`
asserts how soon something happens: no other test of hosts runs meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test, with the fixtures that it sets up, beside others or alone."""
    alone = item.get_closest_marker("alone") is not None
    here = Path(__file__).parent
    with _locked(here, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
        return (yield)


@contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    """Hold a lock on a directory. Whoever waits for it keeps later ones waiting by another lock."""
    lock = os.open(directory, os.O_RDONLY)
    try:
        queue = os.open(directory.parent, os.O_RDONLY)
        try:
            fcntl.flock(queue, fcntl.LOCK_EX)
            fcntl.flock(lock, how)
        finally:
            os.close(queue)
        yield
    finally:
        os.close(lock)


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
