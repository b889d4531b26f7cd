"""One attempt at one message: calls the handler, and turns its result or error into an Outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from cordata import clock, events
from cordata.broker import Message, Outcome, give_back
from cordata.config.sections import EngineConfig
from cordata.context import Context, Event, EventContext, derive_context
from cordata.core.commit_guard import CommitGuard, CommittedTwice
from cordata.core.message_state import (
    Failure,
    Verdict,
    add_failure,
    after_failure,
    error_text,
    is_permanent,
    is_unavailable,
)
from cordata.core.retry import STORE_UNAVAILABLE_ATTEMPT, Backoff
from cordata.errors import AlreadySeen, ClaimLost, StoreUnavailable
from cordata.log import error_places, error_summary, fields, logger
from cordata.metrics.process import Outcomes
from cordata.registry import Handler
from cordata.services.handler_call import EventAttempt

log = logger("cordata.engine")

_decode = msgspec.json.decode
_decode_headers = msgspec.json.Decoder(dict[str, Any]).decode


class Attempts:
    """Calls handlers for one process."""

    def __init__(
        self,
        ctx: Context,
        config: EngineConfig,
        *,
        owner_id: str,
        metrics: Mapping[str, Outcomes] = MappingProxyType({}),
        is_cancelled: Callable[[], bool] = lambda: True,
    ) -> None:
        """`metrics`: where attempts are counted, by group. `is_cancelled`: whether a cancellation
        comes from the owner of the attempts; if not, the handler has cancelled itself, and its
        message failed.
        """
        self._ctx = ctx
        self._backoff = Backoff(config.retry_first_s, config.retry_max_s)
        self._owner_id = owner_id
        self._metrics = metrics
        self._is_cancelled = is_cancelled

    async def attempt(
        self, handler: Handler, message: Message, before: Sequence[Message] = ()
    ) -> Outcome:
        """Handle one message. Raises only CancelledError, when this task is cancelled.

        `before`: messages of the same key that this process has handled without a commit, and not
        settled yet.
        """
        metrics = self._metrics.get(handler.group)
        begun = 0.0 if metrics is None else clock.monotonic()
        try:
            event = _event(message)
        except Exception as error:  # noqa: BLE001 - its row is damaged
            outcome = self._failed(handler, message, error)
        else:
            outcome = await self._attempt(handler, message, event, before)
        if metrics is not None:
            metrics.count(outcome.verdict.value, clock.monotonic() - begun)
        return outcome

    async def _attempt(
        self, handler: Handler, message: Message, event: Event, before: Sequence[Message]
    ) -> Outcome:
        """Call the handler.

        Any exception, also SystemExit, is a failure of the message: if it ended the worker, the
        next worker would claim the message and end as well.
        """
        guard = CommitGuard()
        ctx = derive_context(
            self._ctx,
            EventContext,
            group=message.group,
            event_id=message.event_id,
            _claim=message.claim,
            _attempt=message.attempt,
            _guard=guard,
            _batch=handler.batch,
            _in_order=message.order_key is not None,
            _before=[(one.event_id, one.claim, one.attempt) for one in before],
        )
        with EventAttempt(
            event.headers,
            event.id,
            source=event.type,
            name=message.group,
            number=message.attempt,
        ) as attempt:
            error = await attempt.call(
                handler.function,
                event,
                ctx,
                guard=guard,
                timeout_s=handler.timeout_s,
                is_cancelled=self._is_cancelled,
            )
            return self._outcome_of(handler, message, ctx, error)

    def _outcome_of(
        self,
        handler: Handler,
        message: Message,
        ctx: EventContext,
        error: BaseException | None,
    ) -> Outcome:
        if isinstance(error, CommittedTwice):
            return self._failed(handler, message, error, committed=ctx.committed)
        if ctx.committed and error is not None:
            log.warning(
                "%s: failed with %s at %s after its effect was committed; it counts as handled",
                message.group,
                error_summary(error),
                error_places(error),
                extra=_extra(message),
            )
        if isinstance(error, ClaimLost):
            log.warning("%s: %s", message.group, error, extra=_extra(message))
            return give_back(message)  # changes nothing: it has no claim any more
        if error is None or ctx.committed or isinstance(error, AlreadySeen):
            return Outcome(message=message, verdict=Verdict.DONE, marked=ctx.committed)
        if is_unavailable(error):
            return self._defer(message, error)
        return self._failed(handler, message, error)

    def _defer(self, message: Message, error: StoreUnavailable) -> Outcome:
        log.warning("%s waits for the store: %s", message.group, error.code, extra=_extra(message))
        delay_s = self._backoff.delay_s(STORE_UNAVAILABLE_ATTEMPT)
        return Outcome(message=message, verdict=Verdict.DEFER, delay_us=int(delay_s * 1e6))

    def _failed(
        self,
        handler: Handler,
        message: Message,
        error: BaseException,
        *,
        committed: bool = False,
    ) -> Outcome:
        attempt = message.attempt
        permanent = is_permanent(error)
        verdict = after_failure(attempt, retries=handler.retries, permanent=permanent)
        self._log_failure(handler, message, verdict, error)
        failure = Failure(
            attempt=attempt, at=self._ctx.now_us(), owner=self._owner_id, error=error_text(error)
        )
        return Outcome(
            message=message,
            verdict=verdict,
            delay_us=int(self._backoff.delay_s(attempt) * 1e6),
            history=add_failure(message.history, failure),
            marked=committed,
        )

    def _log_failure(
        self,
        handler: Handler,
        message: Message,
        verdict: Verdict,
        error: BaseException,
    ) -> None:
        """Logs type and place of the error. Its text may quote the payload: only the row has it."""
        extra = _extra(message, events.MESSAGE_DEAD if verdict is Verdict.DEAD else "")
        log.log(
            _LEVEL[verdict],
            "%s: attempt %d of %d at event %s failed with %s at %s%s",
            message.group,
            message.attempt,
            handler.retries + 1,
            message.event_id,
            error_summary(error),
            error_places(error),
            "; it is a dead letter now" if verdict is Verdict.DEAD else "",
            extra=extra,
        )


_LEVEL = {Verdict.RETRY: logging.WARNING, Verdict.DEAD: logging.ERROR}


def _extra(message: Message, message_id: str = "") -> dict[str, object]:
    return fields(
        message_id,
        event_id=message.event_id,
        group=message.group,
        attempt=message.attempt,
    )


def _event(message: Message) -> Event:
    return Event(
        id=message.event_id,
        type=message.type,
        key=message.key,
        payload=_decode(message.payload),
        headers=_decode_headers(message.headers),
        attempt=message.attempt,
        created_at=clock.from_us(message.created_at),
    )
