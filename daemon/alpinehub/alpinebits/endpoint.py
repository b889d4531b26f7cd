"""POST /api/alpinebits. The checks are made in this order, and the first error is the answer:

credentials (401), protocol version header missing or malformed (400), body too large (413),
Content-Encoding or Content-Type (415, 400), action missing (400), version not supported (400;
except for a handshake, which tells the client the versions), action unknown in that version (400),
document too large for it (413), XML, then schema (400), then the data: OTA errors with status 200.

Without valid credentials the body is not read.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from alpinehub.alpinebits import action as names
from alpinehub.alpinebits import transport_error
from alpinehub.alpinebits.action import ACTIONS, HANDSHAKE
from alpinehub.alpinebits.actions.acknowledge import acknowledge_requests
from alpinehub.alpinebits.actions.events import receive_events
from alpinehub.alpinebits.actions.freerooms import receive_free_rooms
from alpinehub.alpinebits.actions.handshake import handshake, send_capabilities, send_version
from alpinehub.alpinebits.actions.inventory import receive_content, send_content
from alpinehub.alpinebits.actions.rate_plans import receive_rate_plans, send_base_rates
from alpinehub.alpinebits.actions.read import read_requests
from alpinehub.alpinebits.actions.status import update_statuses
from alpinehub.alpinebits.call import Call, PlainText, ResponseBody
from alpinehub.alpinebits.concurrency_limit import limit_of
from alpinehub.alpinebits.outcome import MessageRejected
from alpinehub.alpinebits.protocol import NEWEST, PROTOCOLS
from alpinehub.alpinebits.rules import freerooms
from alpinehub.alpinebits.transport import (
    HEADERS,
    TEXT,
    client_id,
    log_in,
    plain,
    protocol_name,
    read_form,
    refuse,
)
from alpinehub.alpinebits.transport_error import TransportError
from alpinehub.asgi import Receive, Reply, Request, Scope, Send, path_below, respond
from alpinehub.login import TooManyLogins, counted_network
from alpinehub.memory_budget import Allocation
from alpinehub.models import Account
from cordata import Context, StoreUnavailable, fields

_log = logging.getLogger("alpinehub.alpinebits")

_XML = b"text/xml; charset=utf-8"

HANDLERS: Final[Mapping[str, Callable[[Call], Awaitable[ResponseBody]]]] = {
    names.GET_VERSION: send_version,
    names.GET_CAPABILITIES: send_capabilities,
    names.HANDSHAKE: handshake,
    names.READ: read_requests,
    names.ACKNOWLEDGE: acknowledge_requests,
    names.STATUS_UPDATE: update_statuses,
    names.AVAIL: partial(receive_free_rooms, reader=freerooms.AVAIL),
    names.INV_COUNT: partial(receive_free_rooms, reader=freerooms.COUNTS),
    names.INVENTORY_PUSH: partial(receive_content, kind="inventory"),
    names.INFO_PUSH: partial(receive_content, kind="info"),
    names.INVENTORY_PULL: partial(send_content, kind="inventory"),
    names.INFO_PULL: partial(send_content, kind="info"),
    names.RATE_PLANS: receive_rate_plans,
    names.BASE_RATES: send_base_rates,
    names.EVENT_REPORTS: receive_events,
}


async def alpinebits(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application: answer one request of hotel software."""
    if path_below(scope).strip("/"):
        reply = plain(404, "there is nothing at this path")
    elif scope["method"] != "POST":
        reply = plain(405, "only POST is taken here", (b"allow", b"POST"))
    else:
        reply = await _reply(Request(scope, receive))
    await respond(send, reply)


async def _reply(request: Request) -> Reply:
    ctx = request.ctx
    try:
        account = await log_in(ctx, request)
        with limit_of(ctx).body(account.id) as allocation:
            answer = await _answer(ctx, request, account, allocation)
    except TransportError as problem:
        return refuse(request, problem)
    except TooManyLogins as error:  # instead of a 401, after too many failed logins
        return plain(429, error.text, (b"retry-after", b"%d" % error.retry_after_s))
    except StoreUnavailable as error:
        again = (b"retry-after", b"%d" % max(1, round(error.retry_after_s)))
        return plain(503, "the server cannot take requests at the moment; try again", again)
    except Exception:  # noqa: BLE001 - the boundary of one request
        _log.exception("a request failed", extra=fields(status=500))
        return plain(500, "the server failed; the request was not processed")
    if isinstance(answer, PlainText):
        return Reply(200, answer.text.encode(), TEXT, HEADERS)
    return Reply(200, answer, _XML, HEADERS)


async def _answer(
    ctx: Context, request: Request, account: Account, allocation: Allocation
) -> ResponseBody:
    name = protocol_name(request)
    sent = await read_form(request, allocation)
    if not sent.action:
        raise TransportError(400, transport_error.BAD_ACTION)
    protocol = PROTOCOLS.get(name)
    if sent.action == HANDSHAKE and (protocol is None or protocol.housekeeping):
        protocol = NEWEST
    if protocol is None:
        raise TransportError(400, transport_error.BAD_VERSION)
    if not any(one.name == sent.action and one.is_in(protocol) for one in ACTIONS):
        raise TransportError(400, transport_error.BAD_ACTION)
    call = Call(
        ctx=ctx,
        account=account,
        protocol=protocol,
        client_id=client_id(request),
        network=counted_network(request.client or ""),
        action=sent.action,
        data=sent.request,
    )
    try:
        return await HANDLERS[sent.action](call)
    except MessageRejected as rejected:
        return call.respond(rejected.outcome)
