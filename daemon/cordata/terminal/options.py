"""Options that the commands of both programs have."""

from __future__ import annotations

from typing import Any

import click

config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False),
    envvar="CORDATA_CONFIG",
    help="Configuration file.  [default: ./cordata.toml, else /etc/cordata/cordata.toml]",
)
#: For commands without a log. It passes nothing: `run_command` finds it among the arguments.
traceback_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show tracebacks."
)
limit_option = click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Rows at most."
)


class _RowNumber(click.ParamType):  # type: ignore[type-arg]  # not generic in Debian
    """The number of a row, a position or a version: the databases' integers have 63 bits."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. Raises: click.BadParameter."""
        number = int(click.INT.convert(value, param, ctx))
        if not 0 <= number < 2**63:
            self.fail(f"{value} is not from 0 to {2**63 - 1}", param, ctx)
        return number


#: The type of an argument or option that names a row, a position or a version.
ROW_NUMBER = _RowNumber()
