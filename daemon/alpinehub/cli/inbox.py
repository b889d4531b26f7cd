"""`alpinehub inbox list|show|map|reprocess|accept|reject`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import click
import msgspec

from alpinehub.cli.session import OPERATOR, ROW_NUMBER, Hub, empty_log, hub_options, pair
from alpinehub.cli.session import since as moment
from alpinehub.inbox import actions
from alpinehub.inbox.listing import STATES, InboxFilter, list_inbox, show_submission, state_of
from alpinehub.webhooks.fields import TARGETS, FieldMapping, decode, encode
from alpinehub.webhooks.interpretation import Mapped
from cordata import Context
from cordata.terminal import (
    Group,
    limit_option,
    printable,
    show_json,
    show_page,
    show_record,
    show_table,
)


@click.group(cls=Group, short_help="Submissions of forms: review, mapping, processing.")
def inbox() -> None:
    """Submissions of forms: the review list, their fields, mapping, processing."""


@inbox.command(
    "list",
    short_help="List submissions that wait for review, or all, the newest first.",
    examples="""
        alpinehub inbox list
        alpinehub inbox list --hotel EDELW --state all --since 2d --json
    """,
)
@click.option("--hotel", metavar="CODE", help="Of this hotel only.")
@click.option("--source", metavar="NAME", help="Of sources of this name only.")
@click.option(
    "--state", type=click.Choice(STATES),
    help="Those in this state.  [default: review and undeliverable]",
)  # fmt: skip
@click.option(
    "--since", callback=moment, metavar="TIME", help="Received then or later: 2h, 7d, a date."
)
@limit_option
@click.option("--after", type=ROW_NUMBER, default=0, metavar="ID", help="Continue after this one.")
@hub_options
def list_(hub: Hub, /, limit: int, **chosen: Any) -> None:
    """List submissions and undeliverable guest requests, the newest first.

    The guests' data is not shown; see `alpinehub inbox show ID`, and for an undeliverable guest
    request `alpinehub requests show ID`. --after and "next" in the JSON output are for submissions
    only; of undeliverable guest requests the newest are listed, as many as --limit.
    """
    wanted = InboxFilter(limit=limit + 1, **chosen)
    rows = hub.run(lambda ctx: list_inbox(ctx.store, wanted))
    columns = ("id", "received_at", "hotel", "source", "kind", "state", "outcome", "error")
    submissions = [row for row in rows if row["state"] != "undeliverable"]
    requests = [row for row in rows if row["state"] == "undeliverable"]
    following = submissions[limit - 1]["id"] if len(submissions) > limit else None
    shown = [*submissions[:limit], *requests[:limit]]
    show_page(shown, columns, next=following, json_=hub.json)
    if len(requests) > limit:
        click.echo("there are more undeliverable guest requests: raise --limit", err=True)


@inbox.command(
    "show",
    short_help="Show a submission, and the meaning of its fields.",
    examples="alpinehub inbox show 17",
)
@click.argument("id_", metavar="ID", type=ROW_NUMBER)
@click.option("--body", is_flag=True, help="Also print the body as it was received.")
@hub_options
def show_(hub: Hub, id_: int, body: bool) -> None:
    """Show a submission: its fields, the target of each, and the problems that prevent its mapping.

    The output is personal data.
    """
    record = hub.run(lambda ctx: show_submission(ctx.store, id_))
    sent = record.pop("body")
    if body:
        record["body"] = sent
    if hub.json:
        show_record(record, json_=True)
        return
    fields: Any = record.pop("fields")
    now: Any = record.pop("now")
    shown = {name: value for name, value in record.items() if name != "body" and value is not None}
    if not sent:
        shown["text"] = "deleted"
    elif now is not None:
        problems = ", ".join(now["problems"])
        shown["would now be"] = f"{now['state']}{f' ({problems})' if problems else ''}"
    show_record(shown, json_=False)
    columns = ("key", "label", "value", "means")
    show_table([{name: one[name] or None for name in columns} for one in fields], columns)
    if body:
        click.echo(printable(str(sent)))


@inbox.command(
    "map",
    short_help="Show or change how the fields of a form are mapped.",
    examples="""
        alpinehub inbox map EDELW homepage
        alpinehub inbox map EDELW homepage --field arrival=field:date_picker_a7c8 \\
            --field "departure=label:Bis wann" --value "room_type:Doppelzimmer=DZ"
        alpinehub inbox map EDELW homepage --default adults=2 --try 17
    """,
    epilog=f"Targets: {', '.join(TARGETS)}. name, dates, guests, nights, children_count and"
    " children_or_ages are converted to other targets; privacy is not sent to the hotel; child_age"
    " is for --default.",
)
@click.argument("hotel")
@click.argument("source")
@click.option(
    "--field", "fields", multiple=True, metavar="TARGET=PLACE",
    help="Where the answer is: field:KEY, prefix:KEY, label:TEXT or path:contact.NAME; several for "
    "one target are tried in order. An empty PLACE: by the names of the fields, the default.",
)  # fmt: skip
@click.option(
    "--value", "values", multiple=True, metavar="TARGET:TEXT=MEANING",
    help="Meaning of a text; the TEXT * stands for all others.",
)  # fmt: skip
@click.option(
    "--default", "defaults", multiple=True, metavar="TARGET=TEXT",
    help="Value if the form has none; an empty TEXT removes it.",
)  # fmt: skip
@click.option(
    "--ignore", multiple=True, metavar="PLACE", help="A field that is not sent to the hotel."
)
@click.option(
    "--date-order", type=click.Choice(["auto", "dmy", "mdy"]),
    help="How to read 1/2/2027; auto: by the guest's language and the form, if unclear to review.",
)  # fmt: skip
@click.option(
    "--without-stay", type=click.Choice(["review", "lead"]),
    help="Submissions without dates: to the review list, or a guest request without a stay.",
)  # fmt: skip
@click.option(
    "--file", "file", type=click.File("rb"), help="The whole mapping as JSON; - is standard input."
)
@click.option(
    "--try", "try_", type=ROW_NUMBER, metavar="ID", help="Only show what this one would become."
)
@hub_options
def map_(hub: Hub, /, hotel: str, source: str, file: Any, try_: int | None, **given: Any) -> None:
    """Show how the fields of a source's form are mapped, or change it.

    Submissions in review stay there until `alpinehub inbox reprocess`; the command prints how many
    of them the new mapping could interpret.
    """
    change = _changed_by(file.read() if file else None, **given)

    async def act(ctx: Context) -> dict[str, object]:
        changed = await actions.change_mapping(
            ctx.store, hotel, source, change, dry_run=try_ is not None
        )
        record: dict[str, object] = {
            "mapping": json.loads(encode(changed.mapping)),
            "in_review": changed.examined,
            "can_be_mapped": changed.mapped,
        }
        if try_ is not None:
            found = await actions.try_mapping(ctx.store, try_, changed.mapping)
            record["becomes"] = state_of(found)
            record["problems"] = list(getattr(found, "problems", ()))
            if isinstance(found, Mapped) and found.data.arrival and found.data.departure:
                record["arrival"] = found.data.arrival.isoformat()
                record["departure"] = found.data.departure.isoformat()
        return record

    record = hub.run(act)
    sentence = printable(json.dumps(record["mapping"], ensure_ascii=False))
    if try_ is not None:
        sentence += f"\n{try_} would be {record['becomes']}"
        if record["problems"]:
            sentence += f": {_listed(record['problems'])}"
        elif "arrival" in record:
            sentence += f": {record['arrival']} to {record['departure']}"
    elif record["in_review"]:
        next_ = (
            f"`alpinehub inbox reprocess --hotel {hotel} --source {source}`"
            if record["can_be_mapped"]
            else "`alpinehub inbox show ID` shows the problems"
        )
        counts = f"{record['can_be_mapped']} of {record['in_review']} in review can be mapped"
        sentence += f"\n{counts}: {next_}"
    hub.print_result(record, sentence)


@inbox.command(
    short_help="Interpret submissions again, after a change of the mapping or a rejection.",
    examples="""
        alpinehub inbox reprocess 17 18
        alpinehub inbox reprocess --hotel EDELW --source homepage --dry-run
        alpinehub inbox reprocess --all
    """,
)
@click.argument("ids", metavar="[ID]...", type=ROW_NUMBER, nargs=-1)
@click.option("--hotel", metavar="CODE", help="All in review of this hotel.")
@click.option("--source", metavar="NAME", help="All in review of sources of this name.")
@click.option("--all", "all_", is_flag=True, help="All in review.")
@click.option("--dry-run", is_flag=True, help="Only show the result.")
@click.option(
    "--force", is_flag=True,
    help="Also those already mapped: differences become a change of the guest request.",
)  # fmt: skip
@hub_options
def reprocess(
    hub: Hub,
    ids: tuple[int, ...],
    hotel: str | None,
    source: str | None,
    all_: bool,
    dry_run: bool,
    force: bool,
) -> int:
    """Interpret submissions again, after a change of the mapping of their source.

    An ID may be of a rejected submission: it becomes a guest request, or waits for review again. A
    submission that was mapped meanwhile stays as it is. Exit code 1 if some are in review, stay
    rejected, or have lost their text by an erasure or their retention (`text_deleted`).
    """
    if bool(ids) == (all_ or hotel is not None or source is not None):
        raise click.UsageError("give IDs of submissions, or --hotel, --source or --all")

    async def act(ctx: Context) -> list[actions.ReprocessResult]:
        chosen = ids or await actions.in_review(ctx.store, hotel, source)
        results = actions.reprocess(ctx, chosen, dry_run=dry_run, force=force, rejected=bool(ids))
        return [one async for one in results]

    done = hub.run(act)
    if hub.json:
        show_json([asdict(one) for one in done])
    else:
        for one in done:
            problems = f" ({_listed(one.problems)})" if one.problems else ""
            click.echo(f"{one.id}: {one.state}{problems}")
        click.echo(f"{sum(one.state == 'mapped' for one in done)} of {len(done)} mapped")
    return 0 if all(one.done for one in done) else 1


@inbox.command(
    short_help="Accept a submission as it is.",
    examples="alpinehub inbox accept 17",
)
@click.argument("id_", metavar="ID", type=ROW_NUMBER)
@hub_options
def accept(hub: Hub, id_: int) -> None:
    """Accept a submission of the review list as it is: it is sent to the hotel although its stay is
    in the past (`past:arrival`) or very long (`too_long:departure`).
    """
    outcome = hub.run(lambda ctx: actions.accept(ctx, id_, by=OPERATOR))
    text = f"submission {id_} accepted"
    if outcome == "duplicate":
        text += "; it is not sent, because it is a duplicate, or a later submission has changed its"
        text += " request"
    hub.print_result({"id": id_, "state": "mapped", "outcome": outcome}, text)


@inbox.command(
    examples="""
        alpinehub inbox reject 17 --reason advertising
        alpinehub inbox reject 17 --reason letter --erase
    """,
)
@click.argument("id_", metavar="ID", type=ROW_NUMBER)
@click.option("--reason", required=True, help="Reason; stored with the submission.")
@click.option(
    "--erase", is_flag=True,
    help="Delete its text now, also if it was rejected before. It cannot be undone.",
)  # fmt: skip
@hub_options
def reject(hub: Hub, id_: int, reason: str, erase: bool) -> None:
    """Reject a submission of the review list: no hotel sees it.

    Its text is kept until the end of its retention (inbox_days, 90 by default): until then
    `alpinehub inbox reprocess ID` takes the rejection back.
    """

    async def act(ctx: Context) -> None:
        await actions.reject(ctx.store, id_, reason, erase=erase)
        if erase:
            await empty_log(ctx)

    hub.run(act)
    record = {"id": id_, "state": "rejected", "reason": reason, "erased": erase}
    text = f"submission {id_} rejected"
    hub.print_result(record, f"{text}, its text is deleted" if erase else text)


def _listed(problems: object) -> str:
    return ", ".join(map(str, problems)) if isinstance(problems, list | tuple) else ""


def _changed_by(
    whole: bytes | None,
    *,
    fields: Sequence[str],
    values: Sequence[str],
    defaults: Sequence[str],
    ignore: Sequence[str],
    date_order: str | None,
    without_stay: str | None,
) -> Callable[[FieldMapping], FieldMapping]:
    """The change of a mapping by the options: `whole` replaces it, the others change parts of it.

    Raises: click.UsageError.
    """
    places = [pair(word, "TARGET=PLACE") for word in fields]
    default_texts = [pair(word, "TARGET=TEXT") for word in defaults]
    meanings = [_meaning(word) for word in values]
    try:
        given = None if whole is None else decode(whole)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--file: {error}") from None

    def change(mapping: FieldMapping) -> FieldMapping:
        mapping = mapping if given is None else given
        change: dict[str, Any] = {}
        if places:
            change["fields"] = _with_places(mapping, places)
        if meanings:
            change["values"] = _with_meanings(mapping, meanings)
        if default_texts:
            merged = {**mapping.defaults, **dict(default_texts)}
            change["defaults"] = {target: text for target, text in merged.items() if text}
        if ignore:
            change["ignore"] = tuple(dict.fromkeys((*mapping.ignore, *ignore)))
        if date_order:
            change["date_order"] = date_order
        if without_stay:
            change["without_stay"] = without_stay
        return msgspec.structs.replace(mapping, **change)

    return change


def _with_places(
    mapping: FieldMapping, places: Sequence[tuple[str, str]]
) -> dict[str, tuple[str, ...]]:
    """The places of the mapping, those of the named targets replaced; an empty place removes."""
    named: dict[str, tuple[str, ...]] = {}
    for target, place in places:
        named[target] = named.get(target, ()) + ((place,) if place else ())
    merged = {**mapping.fields, **named}
    return {target: found for target, found in merged.items() if found}


def _with_meanings(
    mapping: FieldMapping, meanings: Sequence[tuple[str, str, str]]
) -> dict[str, dict[str, str]]:
    merged = {target: dict(known) for target, known in mapping.values.items()}
    for target, text, meaning in meanings:
        merged.setdefault(target, {})[text] = meaning
    return merged


def _meaning(word: str) -> tuple[str, str, str]:
    left, meaning = pair(word, "TARGET:TEXT=MEANING")
    target, colon, text = left.partition(":")
    if not target or not colon or not text:
        raise click.UsageError(f"{word!r} must be TARGET:TEXT=MEANING")
    return target, text, meaning
