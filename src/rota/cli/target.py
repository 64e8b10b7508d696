"""Which app and which database a command is about.

With an app (`-a MODULE:APP`, or ROTA_APP) it is the app's own database and schema; without, the one the
environment names. `--dsn` and `--schema` win over both, before the command's name or after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from rota.cli.endings import MISTAKE, Told, database_errors_told
from rota.cli.load import load

if TYPE_CHECKING:
    from rota import Rota

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

NOT_SET = (
    "no database is set: say --dsn postgresql://user:password@host/name (or --dsn local for the "
    "embedded one), set ROTA_DATABASE_URL, or name your app with -a MODULE:APP"
)


@dataclass(frozen=True, slots=True)
class Target:
    app: str | None = None
    dsn: str | None = None
    schema: str | None = None

    def over(self, app: str | None, dsn: str | None, schema: str | None) -> Target:
        """This, with what was said closer to the command in its place."""
        return Target(app or self.app, dsn or self.dsn, schema or self.schema)

    def rota(self) -> Rota:
        """The app: the one named, or one that knows no task."""
        from rota import Rota

        if self.app is None:
            return Rota(self.dsn or _from_environment(), schema=self.schema)
        app = load(self.app)
        if self.dsn is not None:
            app.move_to(self.dsn)
        if self.schema is not None:
            from rota.store.query import check_schema

            app.settings = replace(app.settings, schema=check_schema(self.schema))
        return app

    def ask(self, question: Callable[[Rota], Awaitable[T]]) -> T:
        """Put a question to an app whose database is there and has the schema this Rota knows."""

        async def asking(app: Rota) -> T:
            from rota.store.migrate import check

            await check((await app.open()).database)
            return await question(app)

        return self.ask_unchecked(asking)

    def ask_unchecked(self, question: Callable[[Rota], Awaitable[T]]) -> T:
        app = self.rota()  # outside the loop: a module may not expect one while it is imported

        async def asking() -> T:
            async with app:
                return await question(app)

        with database_errors_told():
            return asyncio.run(asking())


def _from_environment() -> str:
    from rota.errors import SettingsError
    from rota.model.settings import NO_DATABASE, database_url

    try:
        return database_url()
    except SettingsError as error:
        # On the command line there are more ways to say it.
        raise Told(NOT_SET if str(error) == NO_DATABASE else str(error), MISTAKE) from None


def app_option(
    *, above: bool, panel: str = "Database", what: str = "The app whose database it is."
) -> Callable[[Command], Command]:
    return click.option(
        "-a",
        "--app",
        metavar="MODULE:APP",
        envvar="ROTA_APP" if above else None,
        show_envvar=above,
        panel=panel,
        help=what,
    )


def database_options(*, above: bool) -> Callable[[Command], Command]:
    # No envvar: the environment is asked last, for it must not overrule what an app says of itself.
    asked = " [env: ROTA_DATABASE_URL=]" if above else ""
    dsn = click.option(
        "--dsn",
        metavar="URL",
        panel="Database",
        help=f"Where it is; local means the embedded one.{asked}",
    )
    schema = click.option("--schema", metavar="NAME", panel="Database", help="The schema in it.")
    panel = click.option_panel("Database")
    return lambda command: panel(dsn(schema(command)))


def with_database(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command its target, and the options that say which database."""

    @wraps(command)
    @click.pass_context
    def wrapped(
        context: click.Context,
        /,
        dsn: str | None,
        schema: str | None,
        app: str | None = None,
        **rest: Any,
    ) -> T:
        above = context.find_object(Target) or Target()
        return command(above.over(app, dsn, schema), **rest)

    return click.option_panel("Options")(database_options(above=False)(wrapped))


def with_target(command: Callable[..., T]) -> Callable[..., T]:
    """The same, and the one that says which app."""
    return app_option(above=False)(with_database(command))


def goes_on(target: Target) -> bool:
    """Whether a command of this group comes next; what was said before it is its target, too."""
    context = click.get_current_context()
    assert context is not None
    context.obj = target
    return context.invoked_subcommand is not None


def with_app(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command an app, and its name: for what is asked of code, and needs no database."""

    @wraps(command)
    @click.pass_context
    def wrapped(context: click.Context, /, app: str | None, **rest: Any) -> T:
        name = app or (context.find_object(Target) or Target()).app
        if name is None:
            raise click.UsageError("say which app: -a MODULE:APP, or set ROTA_APP")
        return command(load(name), name, **rest)

    option = app_option(above=False, panel="Options", what="The app whose flows they are.")
    return click.option_panel("Options")(option(wrapped))
