"""Which pg_dump a server takes."""

from __future__ import annotations

import pytest

from cordata.backup.postgres import choose
from cordata.errors import CordataError


def test_oldest_version_that_is_not_older_than_the_server_is_taken() -> None:
    assert choose({15: "", 17: "", 16: ""}, 16) == 16
    assert choose({15: "", 18: "", 17: ""}, 16) == 17


@pytest.mark.parametrize("found", [{}, {15: "", 16: ""}])
def test_package_is_named_when_there_is_none_or_only_an_older_one(found: dict[int, str]) -> None:
    with pytest.raises(CordataError) as caught:
        choose(found, 17)
    assert "postgresql-client-17" in (caught.value.hint or "")
    assert ("16" in str(caught.value)) == bool(found)
