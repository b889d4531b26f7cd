"""Exports spans by OpenTelemetry's SDK, which its own environment variables (OTEL_*) configure.

A span is made when its work has ended, with the ids of cordata.trace: so the journal, headers and
exported spans have the same ones. The SDK collects them, and sends them from a thread of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

from cordata import trace
from cordata.errors import ConfigError

#: How long the end of a process waits for the last spans: the collector may be away.
_FLUSH_S = 3.0
_GROUP = "opentelemetry_traces_exporter"


@contextmanager
def exporting(service: str, instance: str) -> Iterator[None]:
    """Within the block, the spans of this process are exported.

    `service`, `instance`: what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES do not name. Raises:
    ConfigError when the SDK or the exporter of OTEL_TRACES_EXPORTER is not installed.
    """
    made = OtelExporter(service, instance)
    trace.exporter = made
    try:
        yield
    finally:
        trace.exporter = None
        made.close()


class OtelExporter:
    """The spans of one process. Safe in threads."""

    def __init__(self, service: str, instance: str) -> None:
        try:
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise ConfigError(
                "[trace] export: the SDK of OpenTelemetry is not installed",
                hint="pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
            ) from None
        self._ids = _ids()
        self._lock = threading.Lock()
        self._provider = TracerProvider(
            id_generator=self._ids, resource=_resource(service, instance)
        )
        for make in _exporters(os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"):
            self._provider.add_span_processor(BatchSpanProcessor(make()))
        self._tracer = self._provider.get_tracer("cordata")

    def is_sampled(self, trace_id: str) -> bool:
        """Whether a trace that begins here is exported: what OTEL_TRACES_SAMPLER says of its id."""
        from opentelemetry.sdk.trace.sampling import Decision

        result = self._provider.sampler.should_sample(None, int(trace_id, 16), "")
        return result.decision is Decision.RECORD_AND_SAMPLE

    def export(
        self,
        span: trace.Trace,
        name: str,
        *,
        kind: trace.Kind,
        begun_us: int,
        attributes: Mapping[str, str | int],
        error: str = "",
    ) -> None:
        """Export one span, which ends now. `error`: why the work failed."""
        from opentelemetry.context import Context
        from opentelemetry.trace import (
            NonRecordingSpan,
            SpanContext,
            SpanKind,
            Status,
            StatusCode,
            TraceFlags,
            set_span_in_context,
        )

        trace_id, context = int(span.trace_id, 16), Context()
        if span.parent_id:
            parent = SpanContext(
                trace_id=trace_id,
                span_id=int(span.parent_id, 16),
                is_remote=True,
                trace_flags=TraceFlags(int(span.sampled)),
            )
            context = set_span_in_context(NonRecordingSpan(parent), context)
        with self._lock:
            self._ids.trace_id, self._ids.span_id = trace_id, int(span.span_id, 16)
            made = self._tracer.start_span(
                name,
                context=context,
                kind=SpanKind[kind.upper()],
                attributes=dict(attributes),
                start_time=begun_us * 1000,
            )
        if error:
            made.set_status(Status(StatusCode.ERROR, error))
        made.end()

    def close(self) -> None:
        """Send what is left, within `_FLUSH_S`."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(_FLUSH_S)


def _ids() -> Any:
    """The SDK asks it for the ids of the next span."""
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class Ids(IdGenerator):
        trace_id = span_id = 0

        def generate_trace_id(self) -> int:
            return self.trace_id

        def generate_span_id(self) -> int:
            return self.span_id

    return Ids()


def _resource(service: str, instance: str) -> Any:
    """Of all spans; what the environment names takes precedence."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = Resource.create({"service.name": service, "service.instance.id": instance})
    return ours.merge(OTELResourceDetector().detect())


def _exporters(names: str) -> list[Callable[[], Any]]:
    """The exporters of these names, separated by commas. Raises: ConfigError."""
    found = []
    for name in filter(None, map(str.strip, names.split(","))):
        if name == "none":
            continue
        # The package of one protocol only has no entry `otlp`.
        wanted = (name, "otlp_proto_http", "otlp_proto_grpc") if name == "otlp" else (name,)
        entries = [one for want in wanted for one in entry_points(group=_GROUP, name=want)]
        if not entries:
            raise ConfigError(
                f"[trace] export: OpenTelemetry's exporter {name!r} is not installed",
                hint="pip install opentelemetry-exporter-otlp-proto-http, or name another one in"
                " OTEL_TRACES_EXPORTER",
            )
        found.append(entries[0].load())
    return found
