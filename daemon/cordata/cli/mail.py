"""`cordata mail list|show|retry|test`."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import click

from cordata.app_loader import load_runtime
from cordata.cli.choice import Choice, choosing
from cordata.cli.operator import CommandResult, Operator, operator_options, unknown
from cordata.cli.options import ids_argument, paging, state_dir_option, with_state_dir
from cordata.config import Config
from cordata.context import Context
from cordata.context_factory import smtp_login
from cordata.core.number import parse_number
from cordata.errors import ConfigError, CordataError
from cordata.operate.actions import retry_mails
from cordata.store import MAIL_TOPIC, Tx
from cordata.terminal import (
    ROW_NUMBER,
    Counter,
    Group,
    config_option,
    printable,
    show_page,
    show_record,
    traceback_option,
)

_STATES = ("pending", "sending", "sent", "failed")
_COLUMNS = ("id", "state", "attempts", "created_at", "next_at", "sent_at", "last_error")
_LARGEST_ID = 2**63 - 1


@click.group(cls=Group)
def mail() -> None:
    """Outgoing mails: reports, alerts and what the application sends with tx.send_mail.

    The primary sends them. One that the server does not accept for now is pending and tried again;
    one that it refuses, or does not accept within [mail] give_up_s, is failed. MAIL is the number
    in the list.
    """


@mail.command(
    "list",
    examples="""
        cordata mail list
        cordata mail list --state failed --since 1d
        cordata mail list --limit 200 --json
    """,
)
@click.option("--state", type=click.Choice(_STATES), help="Only in this state.")
@choosing("since", "before")
@paging
@operator_options
def list_(
    operator: Operator, state: str | None, choice: Choice, limit: int, after: str | None
) -> int:
    """List mails, the newest first, with their last error.

    Recipients, subject and text are shown by `cordata mail show`. The value of "next" in the JSON
    output is the POSITION of the next page.
    """
    below = _LARGEST_ID if after is None else parse_number(after)
    if below is None:
        raise click.UsageError(f"{after!r} is not the end of a page of mails")

    async def act(ctx: Context) -> list[dict[str, Any]]:
        bounds = choice.filter(ctx.now_us()).bounds()
        rows = await ctx.store.read(
            lambda tx: tx.fetch_all(
                "mail.list", after=below, state=state, limit=limit + 1, **bounds
            )
        )
        return [{name: row[name] for name in _COLUMNS} for row in rows]

    rows = operator.run(act)
    more = rows[limit - 1]["id"] if len(rows) > limit else None
    show_page(rows[:limit], _COLUMNS, next=more, json_=operator.json)
    return 0


@mail.command(
    short_help="Show one with recipients and text.",
    examples="cordata mail show 17",
    exit_codes="0 done, 1 no such mail",
)
@click.argument("number", metavar="MAIL", type=ROW_NUMBER)
@operator_options
def show(operator: Operator, number: int) -> int:
    """Show one mail with its recipients and its text, which may be personal data.

    `remaining` has the recipients that it is still to be sent to. The HTML part is not shown.
    """
    row = operator.run(lambda ctx: ctx.store.read(lambda tx: tx.fetch_one("mail.get", id=number)))
    if row is None:
        raise unknown("mail", number)
    record: dict[str, Any] = {name: row[name] for name in row.keys()}
    record["to"] = json.loads(record["to"])
    record["remaining"] = json.loads(record["remaining"] or "null")
    if record["state"] in ("pending", "sending") and record["remaining"] is None:
        record["remaining"] = record["to"]
    record["has_html"] = bool(record["has_html"])
    text = str(record.pop("text"))
    show_record(record | {"text": text} if operator.json else record, json_=operator.json)
    if not operator.json:
        click.echo("\n" + "\n".join(map(printable, text.splitlines())))
    return 0


@mail.command(
    short_help="Try them again now.",
    examples="""
        cordata mail retry 17 18
        cordata mail retry --all
        cordata mail retry --since 2d
    """,
    exit_codes="0 done, 1 a named mail is neither pending nor failed",
)
@ids_argument("numbers", "MAIL", ROW_NUMBER)
@choosing("since", "before", "all")
@operator_options
def retry(operator: Operator, numbers: tuple[int, ...], choice: Choice) -> int:
    """Send mails again that have failed, and named ones that are pending without waiting longer.

    They count as written now: with the whole of [mail] give_up_s, and this date. Recipients that
    have got the mail do not get it again. While the mail server is unavailable, the primary tries
    it at its own times.
    """
    filters = choice.since is not None or choice.before is not None
    if bool(numbers) + filters + choice.all != 1:
        raise click.UsageError("name mails (MAIL...), or add --since, --before or --all")

    async def act(ctx: Context, counter: Counter) -> CommandResult:
        bounds = choice.filter(ctx.now_us()).bounds()

        async def unit(tx: Tx) -> CommandResult:
            if not numbers:
                tx.notify(MAIL_TOPIC)
                count = await tx.execute("mail.retry_failed", now_us=tx.now_us, **bounds)
                return CommandResult(count=count)
            missing = list(map(str, await retry_mails(tx, numbers)))
            return CommandResult(count=len(numbers) - len(missing), missing=missing)

        return await ctx.store.run(unit)

    return operator.carry_out("to be sent again", act)


@mail.command(
    short_help="Send a test mail now.",
    examples="""
        cordata mail test ops@example.org
        cordata mail test ops@example.org --config ./cordata.toml
    """,
    exit_codes="0 the mail server accepted it, 1 it did not",
)
@click.argument("recipient", metavar="ADDRESS")
@state_dir_option
@config_option
@traceback_option
def test(recipient: str, state_dir: str | None, config: str | None) -> int:
    """Send a mail to ADDRESS as the primary does, but at once and without the store.

    It shows that host, port, security, login and sender of [mail] are right. Run it as root, which
    may read the credentials. Whether the mail arrives is not known here: look into the mailbox.
    """
    loaded = with_state_dir(load_runtime(config), state_dir)
    where = f"{loaded.mail.host}:{loaded.mail.port}"
    asyncio.run(_send_test(loaded, recipient))
    click.echo(f"{where} accepted a mail from {loaded.mail.sender} to {recipient}")
    return 0


async def _send_test(config: Config, recipient: str) -> None:
    """Raises: CordataError when the mail server does not accept the mail."""
    # Of these commands only this one needs it, with aiosmtplib.
    from cordata.mail.smtp import MailRejected, SmtpUnavailable, next_step, send_now

    if not config.mail.host:
        raise ConfigError("no mail server is configured", hint='[mail] host = "..."')
    host = socket.gethostname()
    where = f"{config.mail.host}:{config.mail.port}"
    try:
        refused = await send_now(
            config.mail,
            smtp_login(config),
            to=[recipient],
            subject=f"Test mail from {host}",
            text=f"`cordata mail test` on {host} sent this mail.\n",
        )
    except SmtpUnavailable as error:
        raise CordataError(f"{where}: {error}", hint=next_step(str(error))) from None
    except MailRejected as error:
        raise CordataError(f"{where}: {error}", hint="ask the operator of the server") from None
    if refused:
        (code,) = refused.values()
        raise CordataError(
            f"{where}: recipient refused: {code}",
            hint=f"the server does not take mail from {config.mail.sender} to this address",
        )
