"""Options that the commands of both programs have."""

from __future__ import annotations

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
