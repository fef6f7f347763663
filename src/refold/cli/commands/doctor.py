"""`refold doctor`: what is wrong around the record, and what to do about it."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import click

from refold._version import __version__
from refold.cli.context import Cli, command
from refold.cli.output import Cell, Output
from refold.cli.shapes import counted
from refold.cli.statuses import NOT_OK

if TYPE_CHECKING:
    from refold.errors import RefoldError
    from refold.ledger.ledger import Ledger


@command("doctor")
@click.option("--collect-orphans", is_flag=True, help="Remove artifact files, a day old or more, that no event names.")
def doctor(cli: Cli, collect_orphans: bool) -> int:
    """Look over settings, file and surroundings.

    Where each setting comes from; file system, free room, schema, pages, log, owners, erasures, artifact files, doubts;
    the App, where one is named; which runs of the scope do not go on, and why. Changes nothing without
    --collect-orphans. Ends with status 1 when a check is not ok. `refold verify` proves the record itself.
    """
    import asyncio

    from refold.ledger.maintenance.doctor import doctor as examine

    removed = cli.on_ledger(_collect) if collect_orphans else None
    checks: list[dict[str, Any]] = [
        {"name": "settings", "ok": True, "facts": _settings(cli), "remedy": None},
        *(check._asdict() for check in asyncio.run(examine(cli.ledger_path))),
        *_of_runs(cli),
    ]
    answer: dict[str, Any] = {"ok": all(check["ok"] for check in checks), "checks": checks}
    if removed is not None:
        answer["removed"] = removed
    cli.answer(answer, _print)
    return 0 if answer["ok"] else NOT_OK


def _of_runs(cli: Cli) -> list[dict[str, Any]]:
    """The checks of the App, where one is named, and of the scope's runs, where the ledger can be opened."""
    from refold.errors import RefoldError
    from refold.runtime.examine import examine_runs

    found: list[dict[str, Any]] = []
    app = None
    if cli.names_app:
        try:
            app = cli.app
            facts = {"workflows": app.workflow_names(), "tools": sorted(app.tools), "models": sorted(app.models)}
            found.append({"name": "app", "ok": True, "facts": facts, "remedy": None})
        except RefoldError as error:
            found.append(_failed("app", error))
    try:
        found.append(cli.on_scope(lambda scope: examine_runs(scope, app))._asdict())
    except RefoldError as error:
        found.append(_failed("runs", error))
    return found


def _failed(name: str, error: RefoldError) -> dict[str, Any]:
    return {"name": name, "ok": False, "facts": {"code": error.code, "error": error.message}, "remedy": error.remedy}


async def _collect(ledger: Ledger) -> list[str]:
    from refold.ledger.maintenance.orphans import collect_orphans

    return [orphan.storage_key for orphan in await collect_orphans(ledger)]


def _settings(cli: Cli) -> dict[str, Any]:
    settings = cli.settings.as_dict()
    return {**settings, "ledger_file": str(cli.ledger_path), "refold": __version__, "python": platform.python_version()}


def _print(out: Output, answer: dict[str, Any]) -> None:
    for check in answer["checks"]:
        mark = Cell("ok    ", "good") if check["ok"] else Cell("not ok", "bad")
        out.line(mark, f"  {check['name']:<12}", Cell(_told(check["facts"]), "quiet"))
        if check["remedy"] is not None:
            out.line(f"        {check['remedy']}")
    if "removed" in answer:
        out.line(f"Removed {counted(len(answer['removed']), 'orphan')}.")


def _told(facts: dict[str, Any]) -> str:
    """The facts on one line, without those that say that there is nothing."""
    empty: tuple[Any, ...] = ([], None, "")
    told = (item for item in facts.items() if item[1] not in empty and item != ("more", 0))
    return ", ".join(f"{name} {_value(value)}" for name, value in told)


def _value(value: Any) -> str:
    match value:
        case {"value": str(text), "source": str(source)}:
            return f"{text or 'none'} ({source})"
        case list():
            return "; ".join(map(_value, value))
        case dict():
            return " ".join(f"{name}={inner}" for name, inner in value.items())
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)
