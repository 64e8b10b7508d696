"""Migrations that Alembic and Django generate for an application leave the schema of Rota alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg

from support.places import ROOT

ENVIRONMENT = ROOT / "examples" / "alembic_shop" / "env.py"

TEMPLATE = """
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
import sqlalchemy as sa
from alembic import op

def upgrade():
    ${upgrades if upgrades else "pass"}
"""


def run_alembic(directory: Path, dsn: str, environment: str, *words: str) -> str:
    """Run a command of Alembic. Return the text of all generated migrations."""
    scripts = directory / "migrations"
    (scripts / "versions").mkdir(parents=True, exist_ok=True)
    (scripts / "script.py.mako").write_text(TEMPLATE)
    (scripts / "env.py").write_text(environment)
    (directory / "alembic.ini").write_text("[alembic]\nscript_location = migrations\n")
    done = subprocess.run(
        [sys.executable, "-m", "alembic.config", *words],
        cwd=directory,
        env={**os.environ, "DATABASE_URL": dsn, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return "\n".join(each.read_text() for each in sorted((scripts / "versions").glob("*.py")))


def rota_objects(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "select relname from pg_class where relnamespace = 'rota'::regnamespace order by 1"
        )
        return [name for (name,) in found]


def test_alembic_generated_migration_omits_rota(direct_dsn: str, tmp_path: Path) -> None:
    environment = ENVIRONMENT.read_text("utf-8").replace(
        "from .models", "from examples.alembic_shop.models"
    )
    before = rota_objects(direct_dsn)
    with psycopg.connect(direct_dsn, autocommit=True) as connection:
        connection.execute("create schema billing")
    revision = ("revision", "--autogenerate", "-m", "shop")

    generated = run_alembic(tmp_path, direct_dsn, environment, *revision)
    run_alembic(tmp_path, direct_dsn, environment, "upgrade", "head")

    assert "create_table('orders'" in generated
    assert "rota" not in generated
    assert rota_objects(direct_dsn) == before
    # Without the recipe, Alembic would remove the tables.
    without = environment.replace("include_name=include_name,", "")
    assert "drop_table('claims', schema='rota')" in run_alembic(
        tmp_path, direct_dsn, without, *revision
    )


def test_django_generated_migration_omits_rota(direct_dsn: str) -> None:
    before = rota_objects(direct_dsn)

    def manage(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "django", *words],
            cwd=ROOT,
            env={
                **os.environ,
                "ROTA_DATABASE_URL": direct_dsn,
                "DJANGO_SETTINGS_MODULE": "examples.django_shop.settings",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    generated = manage("makemigrations", "django_shop", "--dry-run", "-v", "3")
    manage("migrate", "--run-syncdb")
    models = manage("inspectdb")

    assert "CreateModel" in generated
    assert "rota" not in generated
    assert "DjangoShopOrder" in models
    assert "db_table = 'claims'" not in models
    assert rota_objects(direct_dsn) == before
