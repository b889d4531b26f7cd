"""W3C trace context (https://www.w3.org/TR/trace-context/) of the request or event at hand.

    traceparent: 00-<trace id, 32 hex digits>-<parent's span id, 16 hex digits>-<flags>

A request without a valid `traceparent` begins a trace of its own, whose id follows from the request
id, and a span's id follows from what the span is: a request, an attempt at a message, a call. So
nothing has to be made, stored or sent for them: only a trace whose id is not the request id, such
as one that began elsewhere, is stored with events and sent with calls. `tracestate` is not passed
on: events are stored, and pushed to third parties. The flag `sampled` is passed on as received.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, Protocol

from cordata.log import request_id

#: The event header with the traceparent of its publisher.
HEADER = "traceparent"

# Version 00 has exactly these fields; later versions may add some behind them.
_TRACEPARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?"
)
_is_trace_id = re.compile(r"(?!0{32})[0-9a-f]{32}").fullmatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The trace that the current work belongs to, and its own place in it."""

    #: 32 hex digits, the same in all processes and programs that the trace goes through.
    trace_id: str
    #: 16 hex digits: this request, this attempt at an event, or this call.
    span_id: str
    #: The span that caused it; "": it is the first one.
    parent_id: str = ""
    #: The caller may have recorded the trace; of one that begins here: it is exported.
    sampled: bool = False

    @property
    def traceparent(self) -> str:
        """The header of requests to other servers."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def log_fields(self) -> dict[str, str]:
        """The journal's fields."""
        return {"TRACE_ID": self.trace_id, "SPAN_ID": self.span_id}


Kind = Literal["server", "consumer", "client"]


class Exporter(Protocol):
    """Exports spans: cordata.otel."""

    def is_sampled(self, trace_id: str) -> bool:
        """Whether a trace that begins here is exported."""

    def export(
        self,
        span: Trace,
        name: str,
        *,
        kind: Kind,
        begun_us: int,
        attributes: Mapping[str, str | int],
        error: str = "",
    ) -> None:
        """Export the span of work that ends now."""


#: Of this process; None: spans are not exported.
exporter: Exporter | None = None

#: The work at hand, whose Trace is made when somebody asks for it: the traceparent that came with
#: it ("": none); what a trace without one is named after (a request id, or an event's id); and what
#: names the span. A tuple, since one is made for each message.
_Work = tuple[str, str, tuple[object, ...]]
_UNKNOWN: _Work = ("", "", ())
#: None: a request or the like without a traceparent, which `request_id` names.
_work: ContextVar[_Work | None] = ContextVar("cordata_trace", default=None)


def current_trace() -> Trace | None:
    """The trace of the request, event, job or pool call at hand; None outside of them.

    With its `traceparent` a request to another server continues the trace there.
    """
    work = _work.get()
    if work is None:
        id_ = request_id.get()
        return trace_of(id_) if id_ else None
    return None if work is _UNKNOWN else trace_of(work[1], work[0], work[2])


def trace_of(root: str, traceparent: str = "", operation: Sequence[object] = ()) -> Trace:
    """The trace of the request (or event) `root`, or of an operation that it caused."""
    span = " ".join(map(str, operation)) or root
    span_id = _digest(span, 8)
    if parent := parse(traceparent):
        trace_id, parent_id, sampled = parent
        return Trace(trace_id=trace_id, span_id=span_id, parent_id=parent_id, sampled=sampled)
    begins_here = span == root or operation[0] == root  # an event that no request caused
    parent_id = "" if begins_here else _digest(root, 8)
    trace_id = trace_id_of(root)
    sampled = exporter is not None and exporter.is_sampled(trace_id)
    return Trace(trace_id=trace_id, span_id=span_id, parent_id=parent_id, sampled=sampled)


def parse(traceparent: object) -> tuple[str, str, bool] | None:
    """(trace id, span id, sampled) of a traceparent; None if it is not valid."""
    found = _TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None or (found[1] == "00" and found[5] is not None):
        return None
    return found[2], found[3], bool(int(found[4], 16) & 1)


def trace_id_in(text: str) -> str:
    """The trace id of a traceparent; "": the text is none."""
    found = parse(text)
    return found[0] if found else ""


def trace_id_of(root: str) -> str:
    """The id of a trace that begins here: the request id itself if it is 32 hex digits."""
    return root if _is_trace_id(root) else _digest(root, 16)


def _digest(text: str, size: int) -> str:
    from hashlib import blake2b  # most processes of the pool never need it

    return blake2b(text.encode(errors="replace"), digest_size=size).hexdigest()


def carried(request_id: str) -> str:
    """The traceparent for an event or a pool call, which has this request id; "": it follows from
    the request id. With an exporter always a whole one, so that the parent is the exact one.
    """
    work = _work.get()
    if exporter is None:
        if work is None:
            if not request_id or _is_trace_id(request_id):
                return ""
        elif not work[0] and work[1] == request_id and _is_trace_id(request_id):
            return ""
    trace = current_trace()
    return "" if trace is None else trace.traceparent


def begin_request(id_: str, traceparent: str) -> None:
    """The current task handles a request with a valid traceparent."""
    _work.set((traceparent, id_, ()))


def begin_message(headers: Mapping[str, str], event_id: str, *attempt: object) -> None:
    """An attempt at an event begins; `attempt` names it, for example by group and number.

    A header may be any JSON value, whatever its type says.
    """
    root = str(headers.get("request_id") or event_id)
    _work.set((str(headers.get(HEADER, "")), root, (event_id, *attempt)))


def begin_call(request_id: str, traceparent: str, call_id: str) -> None:
    """The current context runs a call of the pool."""
    _work.set((traceparent, request_id, (call_id,)))


def end() -> None:
    """The work is over: what follows in this context belongs to none."""
    _work.set(None)


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Within the block the request id is known, but not its trace."""
    token = _work.set(_UNKNOWN)
    try:
        yield
    finally:
        _work.reset(token)
