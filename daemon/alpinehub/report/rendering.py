"""Where a report is rendered: in a child of the pool, or here when the pool does not do it."""

from __future__ import annotations

from alpinehub.pooled import in_the_pool
from alpinehub.report.figures import Figures
from alpinehub.report.writing import Report, write
from cordata import Context, PoolError

#: The command: `alpinehub.report.writing.render`.
RENDER = "render_report"
#: Rendering takes milliseconds: the rest is for a pool that is busy, or starts.
TIMEOUT_S = 10.0


async def render(ctx: Context, figures: Figures, *, timeout_s: float = TIMEOUT_S) -> Report:
    """The report of one hotel and day, whatever the pool does: it is due at eight.

    Raises: what the templates raise.
    """
    try:
        return await in_the_pool(ctx, RENDER, figures, timeout_s=timeout_s, type=Report)
    except PoolError as error:  # its message may quote what the command said
        ctx.log.warning(
            "daily report of %s for hotel %s: not by the pool (%s), so it is rendered here",
            *(figures.day, figures.hotel.code, error.code),
        )
    return write(figures)
