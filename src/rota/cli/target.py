"""App and database of a command.

With an app (`-a MODULE:APP`, or ROTA_APP) the app's own database and schema are used; without, those of
the environment. `--dsn` and `--schema` override both, before or after the command's name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from rota.cli.app_loader import load_app
from rota.cli.exit_codes import USAGE_ERROR, CommandError, translate_database_errors

if TYPE_CHECKING:
    from datetime import datetime

    from rota import Rota
    from rota.operations.declare import Operation, OperationContext

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

SEARCH_SECONDS = 5.0
"""Time limit of a search for runs; the rest is searched by the next command."""

DATABASE_NOT_SET = (
    "no database is set: use --dsn postgresql://user:password@host/name (or --dsn local for the "
    "embedded one), set ROTA_DATABASE_URL, or name your app with -a MODULE:APP"
)


@dataclass(frozen=True, slots=True)
class Target:
    app: str | None = None
    dsn: str | None = None
    schema: str | None = None

    def with_overrides(self, app: str | None, dsn: str | None, schema: str | None) -> Target:
        """Return this target with the values given closer to the command."""
        return Target(app or self.app, dsn or self.dsn, schema or self.schema)

    def resolve_app(self) -> Rota:
        """Return the named app, or an app without tasks."""
        from rota import Rota

        if self.app is None:
            return Rota(self.dsn or _environment_dsn(), schema=self.schema)
        app = load_app(self.app)
        if self.dsn is not None:
            app.database.switch(self.dsn)
        if self.schema is not None:
            from rota.store.query import check_schema

            app.settings = replace(app.settings, schema=check_schema(self.schema))
        return app

    def run(self, action: Callable[[Rota], Awaitable[T]]) -> T:
        """Run an action, after a check that the database is available and its schema fits."""

        async def main(app: Rota) -> T:
            from rota.store.migrate import check

            await check((await app.open()).database)
            return await action(app)

        return self.run_unchecked(main)

    def perform(self, operation: Operation[T], **arguments: Any) -> tuple[T, datetime]:
        """Perform an operation as this account. Return its document and the database's time."""

        async def action(app: Rota) -> tuple[T, datetime]:
            context = operator_context(app)
            return await operation.call(context, **arguments), await context.now()

        return self.run(action)

    def run_unchecked(self, action: Callable[[Rota], Awaitable[T]]) -> T:
        app = self.resolve_app()  # outside the loop: some modules cannot be imported inside one

        async def main() -> T:
            async with app:
                return await action(app)

        with translate_database_errors():
            return asyncio.run(main())


def operator_context(app: Rota) -> OperationContext:
    """Return the context of a command: its caller is the account, which reaches the database directly."""
    from rota.cli.format.owner import current_operator
    from rota.model.access import Caller, Role
    from rota.operations.declare import OperationContext

    return OperationContext(app, Caller(current_operator(), Role.ADMIN), SEARCH_SECONDS)


def _environment_dsn() -> str:
    from rota.errors import SettingsError
    from rota.model.settings import NO_DATABASE_MESSAGE, database_url

    try:
        return database_url()
    except SettingsError as error:
        # The message for the command line lists more options.
        raise CommandError(
            DATABASE_NOT_SET if str(error) == NO_DATABASE_MESSAGE else str(error), USAGE_ERROR
        ) from None


def app_option(
    *, is_global: bool, panel: str = "Database", help_text: str = "App to take the database from."
) -> Callable[[Command], Command]:
    return click.option(
        "-a",
        "--app",
        metavar="MODULE:APP",
        envvar="ROTA_APP" if is_global else None,
        show_envvar=is_global,
        panel=panel,
        help=help_text,
    )


def database_options(*, is_global: bool) -> Callable[[Command], Command]:
    # No envvar: the environment comes last, because it must not override an app's own settings.
    env_hint = " [env: ROTA_DATABASE_URL=]" if is_global else ""
    dsn = click.option(
        "--dsn",
        metavar="URL",
        panel="Database",
        help=f"Database URL; local means the embedded PostgreSQL.{env_hint}",
    )
    schema = click.option(
        "--schema", metavar="NAME", panel="Database", help="Schema in the database."
    )
    panel = click.option_panel("Database")
    return lambda command: panel(dsn(schema(command)))


def with_database(command: Callable[..., T]) -> Callable[..., T]:
    """Add a Target argument and the database options to a command."""

    @wraps(command)
    @click.pass_context
    def wrapped(
        context: click.Context,
        /,
        dsn: str | None,
        schema: str | None,
        app: str | None = None,
        **arguments: Any,
    ) -> T:
        parent = context.find_object(Target) or Target()
        return command(parent.with_overrides(app, dsn, schema), **arguments)

    return click.option_panel("Options")(database_options(is_global=False)(wrapped))


def with_target(command: Callable[..., T]) -> Callable[..., T]:
    """Add a Target argument, the database options and the app option to a command."""
    return app_option(is_global=False)(with_database(command))


def subcommand_follows(target: Target) -> bool:
    """True if a subcommand follows. Options given before it become its target."""
    context = click.get_current_context()
    assert context is not None
    context.obj = target
    return context.invoked_subcommand is not None


def with_app(command: Callable[..., T]) -> Callable[..., T]:
    """Add the app and its name as arguments, for commands that need code but no database."""

    @wraps(command)
    @click.pass_context
    def wrapped(context: click.Context, /, app: str | None, **arguments: Any) -> T:
        name = app or (context.find_object(Target) or Target()).app
        if name is None:
            raise click.UsageError("no app is given: use -a MODULE:APP, or set ROTA_APP")
        return command(load_app(name), name, **arguments)

    option = app_option(is_global=False, panel="Options", help_text="App that declares the flows.")
    return click.option_panel("Options")(option(wrapped))
