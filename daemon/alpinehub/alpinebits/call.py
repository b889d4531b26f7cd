"""An authenticated request of hotel software, and where its document is read.

up to 64 KiB .... in the event loop
up to 256 KiB ... in a thread, so that the worker's other clients do not wait; so are all larger
                  documents of a kind that no child reads
above ........... one at a time, in a child of the pool if there is one: there it does not compete
                  for this worker's interpreter lock, and a crash does not end the worker
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from alpinehub.alpinebits.action import answered_by
from alpinehub.alpinebits.concurrency_limit import limit_of
from alpinehub.alpinebits.outcome import (
    INVALID_HOTEL_CODE,
    MessageRejected,
    Outcome,
    answer,
    error,
)
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.alpinebits.reader import Reader, Reading, read_here
from alpinehub.alpinebits.transport_error import TransportError
from alpinehub.models import Account, Hotel
from cordata import Context, PoolError, Store, fields
from cordata.errors import (
    ChildCrashed,
    CommandFailed,
    CommandPoisoned,
    DeadlineExceeded,
    PoolUnavailable,
    QueueTimeout,
)

if TYPE_CHECKING:
    from alpinehub.alpinebits.rules.inbound_message import InboundMessage

T = TypeVar("T")

#: The commands of `large.py`.
READ_LARGE, CONVERT_LARGE = "read_message", "convert_content"
THREAD_BYTES, POOL_BYTES = 64 * 1024, 256 * 1024
#: An acknowledgement of 2 MiB takes 0.4 s, rates of 8 MiB take 2 s. A document that a child began
#: but did not finish within this time, waiting included, is refused; one that no child began is
#: processed here.
POOL_TIMEOUT_S = 8.0
#: Seconds without calls after no child began one in time, so that not every call waits: with a
#: stopped child, three documents at once are answered within 8.5 s. Without it, the first takes
#: 8 s, the second 16 s, and the third is answered 503.
_SKIP_POOL_S = 60.0
#: Monotonic time until which the pool is not called, by store: a server has one store as long as it
#: runs, and tests run several servers in a process.
_pool_skipped_until: WeakKeyDictionary[Store, float] = WeakKeyDictionary()

#: Errors of one message that are logged; the response has more of them.
_LOGGED = 5

_log = logging.getLogger("alpinehub.alpinebits")


class Recipient(Struct, frozen=True, kw_only=True):
    """The software of an account that receives guest requests, and its protocol version."""

    account_id: int
    protocol: Protocol
    #: X-AlpineBits-ClientID, or "".
    client_id: str
    #: As in Call; "": requests are pushed to it.
    network: str = ""


class Call(Struct, frozen=True, kw_only=True):
    """One authenticated request."""

    ctx: Context
    account: Account
    protocol: Protocol
    #: X-AlpineBits-ClientID, or "".
    client_id: str
    #: Where it comes from, as wrong passwords are counted (login.counted_network).
    network: str
    #: The form field `action`.
    action: str
    #: The XML document; None: the form had no field `request`.
    data: bytes | None

    @property
    def response(self) -> str:
        """Name of the root element of the response."""
        return answered_by(self.action)

    @property
    def recipient(self) -> Recipient:
        """The software that calls."""
        return Recipient(
            account_id=self.account.id,
            protocol=self.protocol,
            client_id=self.client_id,
            network=self.network,
        )

    def require_hotel(self, message: InboundMessage) -> Hotel:
        """The hotel that a message names. Raises: MessageRejected, with the same answer for one
        that does not exist and for one of another account.
        """
        hotel = self.account.hotel(message.hotel_code, message.hotel_name)
        if hotel is None:
            raise MessageRejected(error(INVALID_HOTEL_CODE, "Invalid hotel code"))
        return hotel

    def respond(self, outcome: Outcome, content: str = "") -> bytes:
        """The response to the request; an error is logged here, because its HTTP status is 200 too
        and the HTTP server logs only other statuses.
        """
        errors = [finding for finding in outcome.findings if finding.kind == "error"]
        if errors:
            extra = fields(ota_code=errors[0].code)
            texts = "; ".join(f"{finding.code}: {finding.text}" for finding in errors[:_LOGGED])
            more = f"; and {len(errors) - _LOGGED} more" if len(errors) > _LOGGED else ""
            _log.warning("answered with error %s%s", texts, more, extra=extra)
        return answer(self.response, self.protocol, outcome, content)


class PlainText(Struct, frozen=True):
    """An answer that is a line of text, not a document."""

    text: str


#: The body of the response, with status 200: a document, whole or in parts, unless it is PlainText.
ResponseBody = bytes | PlainText | AsyncGenerator[bytes, None]


async def read(call: Call, reader: Reader[T]) -> T:
    """Read the document of a request. Raises: TransportError if it is missing, too large or not
    valid, if it killed its child (500), or if it cannot be read in time or not now (503);
    CommandFailed.
    """
    data = call.data
    if data is None:
        raise TransportError(400, "the field request is missing")
    if len(data) > reader.max_bytes:
        raise TransportError(413, "the document is too large")
    if len(data) > POOL_BYTES and reader.type is not None:
        async with limit_of(call.ctx).reading():
            return await _read_in_the_pool(call, data, reader, reader.type)
    if len(data) > THREAD_BYTES:
        return await asyncio.to_thread(read_here, data, call.protocol, reader)
    return read_here(data, call.protocol, reader)


async def _read_in_the_pool(call: Call, data: bytes, reader: Reader[T], type: type[T]) -> T:
    payload: dict[str, Any] = {
        "document": data,
        "protocol": call.protocol.name,
        "action": call.action,
    }
    reading = await run_in_pool(call, READ_LARGE, payload, type=Reading, what=reader.root)
    if reading is None:
        return await asyncio.to_thread(read_here, data, call.protocol, reader)
    if reading.message is None:
        raise TransportError(reading.status, reading.text)
    return msgspec.msgpack.decode(reading.message, type=type)


async def run_in_pool(
    call: Call, command: str, payload: object, *, type: type[T], what: str
) -> T | None:
    """The result of a command of `large.py`; None: the pool cannot run it now, the caller has to.

    `what`: the name of the document, for the log. A document that a child has tried is not tried
    here again: it would kill this worker, block it as long, or fail again. Raises: TransportError
    if the command killed its child or took too long; CommandFailed.
    """
    store = call.ctx.store
    if monotonic() < _pool_skipped_until.get(store, 0.0):
        code = PoolUnavailable.code
    else:
        try:
            result: T = await call.ctx.pool.execute(
                command, payload, timeout=POOL_TIMEOUT_S, idempotent=True, type=type
            )
            return result
        except ChildCrashed:
            raise TransportError(500, "the request cannot be processed") from None
        except CommandPoisoned:
            text = "large documents cannot be processed at the moment; try again"
            raise TransportError(503, text) from None
        except CommandFailed:
            raise
        except PoolError as error:
            if isinstance(error, DeadlineExceeded) and error.ran:
                # Not that it is too large: the time includes that of waiting for a child.
                text = "the document could not be processed in time; try again"
                raise TransportError(503, text) from None
            if isinstance(error, PoolUnavailable | DeadlineExceeded | QueueTimeout):
                _pool_skipped_until[store] = monotonic() + _SKIP_POOL_S
            code = error.code
    _log.warning("a large %s is processed in the worker, not by the pool (%s)", what, code)
    return None
