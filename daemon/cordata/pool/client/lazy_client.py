"""A client of the pool that is made at its first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cordata.errors import PoolUnavailable

if TYPE_CHECKING:
    from cordata.pool.client.client import Client


class LazyClient:
    """Makes the Client at first use: a process that never calls imports and opens nothing."""

    def __init__(self, make: Callable[[], Client] | None = None) -> None:
        """`make`: None where there is no pool."""
        self._make = make
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The client of this process. Raises: PoolUnavailable when it has no pool."""
        if self._client is None:
            if self._make is None:
                raise PoolUnavailable("this Context has no pool")
            self._client = self._make()
        return self._client

    async def close(self) -> None:
        """Close the connections, if there are any; calls under way raise PoolClosed."""
        if self._client is not None:
            await self._client.close()
