"""Where a report is rendered: in a child of the pool, or here when the pool does not do it."""

from __future__ import annotations

from time import monotonic
from weakref import WeakKeyDictionary

from alpinehub.report.figures import Figures
from alpinehub.report.writing import Report, write
from cordata import Context, DeadlineExceeded, PoolError, PoolUnavailable, QueueTimeout

#: The command that renders: `alpinehub.report.writing.render`.
RENDER = "render_report"
#: Rendering takes milliseconds: the rest is for a pool that is busy, or starts.
TIMEOUT_S = 10.0
#: A pool that gave no answer in time is not waited for again so soon: many reports may be due.
_AWAY_S = 60.0

#: Until when a pool counts as away, by its client.
_away_until: WeakKeyDictionary[object, float] = WeakKeyDictionary()


async def render(ctx: Context, figures: Figures, *, timeout_s: float = TIMEOUT_S) -> Report:
    """The report of one hotel and day, whatever the pool does: it is due at eight.

    Raises: what the templates raise.
    """
    try:
        return await _in_the_pool(ctx, figures, timeout_s)
    except PoolError as error:  # its message may quote what the command said
        ctx.log.warning(
            "daily report of %s for hotel %s: not by the pool (%s), so it is rendered here",
            *(figures.day, figures.hotel.code, error.code),
        )
    return write(figures)


async def _in_the_pool(ctx: Context, figures: Figures, timeout_s: float) -> Report:
    pool = ctx.pool
    if monotonic() < _away_until.get(pool, 0.0):
        raise PoolUnavailable("it did not answer a moment ago")
    try:
        report: Report = await pool.execute(
            RENDER, figures, timeout=timeout_s, idempotent=True, type=Report
        )
    except (PoolUnavailable, DeadlineExceeded, QueueTimeout):
        _away_until[pool] = monotonic() + _AWAY_S
        raise
    return report
