"""What every command has in hand: its settings, its output, and the way to a ledger."""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from refold.cli.output import Output
from refold.cli.settings import Settings, load_settings

if TYPE_CHECKING:
    from refold.ledger.ledger import Ledger, ScopedLedger
    from refold.runtime.app import App
    from refold.runtime.opened import Refold

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

ACTOR = "cli"
"""Who acts when a person types a command: the ledger's file has no accounts."""
_SHARED = ("ledger", "scope", "app")


class Cli:
    """One call of the program. The options that all commands share may stand before and after the command's name."""

    def __init__(self) -> None:
        self.flags: dict[str, str | None] = dict.fromkeys(_SHARED)
        self.as_json = False

    @functools.cached_property
    def settings(self) -> Settings:
        return load_settings(self.flags, os.environ, Path.cwd())

    @functools.cached_property
    def out(self) -> Output:
        return Output(as_json=self.as_json)

    def answer(self, answer: dict[str, Any], tell: Callable[[Output, dict[str, Any]], None]) -> None:
        """Gives a command's answer: as JSON where that was asked for, else as `tell` prints it for people."""
        if self.as_json:
            self.out.json(answer)
        else:
            tell(self.out, answer)

    @property
    def ledger_path(self) -> Path:
        """The ledger's file."""
        return Path(self.settings.ledger.value.removeprefix("sqlite:///")).absolute()

    @functools.cached_property
    def app(self) -> App:
        """The App that the settings name, imported. Raises AppMissing, BadTarget."""
        from refold.cli.code import load_app

        return load_app(self.settings.app)

    @property
    def names_app(self) -> bool:
        """Whether the settings name an App; nothing is imported for the answer."""
        return bool(self.settings.app.value)

    def on_ledger(self, work: Callable[[Ledger], Awaitable[T]], *, create: bool = False) -> T:
        """Opens the ledger, does the work, closes it; makes a ledger only with `create`. Raises what opening raises."""

        async def run(ledger: Ledger) -> T:
            async with ledger:
                return await work(ledger)

        return self._opened(run, create)

    def _opened(self, work: Callable[[Ledger], Awaitable[T]], create: bool) -> T:
        import asyncio
        import logging

        from refold.ledger.ledger import open_ledger

        # What the log says, the command's answer says too; without a handler Python prints warnings as they are.
        logging.getLogger("refold").addHandler(logging.NullHandler())

        async def run() -> T:
            return await work(await open_ledger(self.ledger_path, create=create))

        return asyncio.run(run())

    def on_app(self, app: App, work: Callable[[Refold], Awaitable[T]], *, create: bool = False) -> T:
        """Opens an App on the ledger for the runs that this command is about, and for no others."""

        async def run(ledger: Ledger) -> T:
            from refold.runtime.opened import Refold

            rf = Refold(app, ledger, ledger.scope(self.settings.scope.value))
            try:
                await rf.begin(recover=False)
                return await work(rf)
            finally:
                await rf.close()

        return self._opened(run, create)

    def on_scope(self, work: Callable[[ScopedLedger], Awaitable[T]], *, create: bool = False) -> T:
        """The same, with the scope that the settings name."""

        async def run(ledger: Ledger) -> T:
            return await work(ledger.scope(self.settings.scope.value))

        return self.on_ledger(run, create=create)


def shared_options(function: F) -> F:
    """--app, --ledger, --scope and --json, which every command takes."""

    def keep(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            context.ensure_object(Cli).flags[str(parameter.name)] = value

    def keep_json(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        context.ensure_object(Cli).as_json |= value

    for option in (
        click.option("--json", is_flag=True, expose_value=False, callback=keep_json, help="Answer as JSON."),
        click.option(
            "--scope",
            metavar="TENANT/WORKSPACE",
            expose_value=False,
            callback=keep,
            help="Whose runs (default/default).",
        ),
        click.option(
            "--ledger",
            metavar="FILE",
            expose_value=False,
            callback=keep,
            help="The ledger's file (refold.db).",
        ),
        click.option(
            "--app", metavar="MODULE:NAME", expose_value=False, callback=keep, help="The App with the code of runs."
        ),
    ):
        function = option(function)
    return function


def command(name: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Makes a function a command that takes the shared options and gets the `Cli` as its first argument."""

    def make(function: Callable[..., Any]) -> click.Command:
        return click.command(name, click.Command, **settings)(shared_options(click.pass_obj(function)))

    return make
