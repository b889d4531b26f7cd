"""A process's way into the pool: a client that does not exist before somebody calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cordata.errors import PoolUnavailable

if TYPE_CHECKING:
    from cordata.pool.client.client import Client


class Door:
    """Makes its Client when it is asked for first: who never calls imports and opens nothing."""

    def __init__(
        self, path: Path | None = None, *, timeout_of: Callable[[str], float] | None = None
    ) -> None:
        self._path = path
        self._timeout_of = timeout_of
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The client of this process. Raises: PoolUnavailable when there is no pool here."""
        if self._client is None:
            if self._path is None:
                raise PoolUnavailable("this Context has no pool")
            from cordata.pool.client.client import Client

            self._client = (
                Client(self._path)
                if self._timeout_of is None
                else Client(self._path, timeout=self._timeout_of)
            )
        return self._client

    async def close(self) -> None:
        """End its connection, if there is one; calls under way raise PoolClosed."""
        if self._client is not None:
            await self._client.close()
