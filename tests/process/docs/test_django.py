"""The Django project of the guide, run as the guide describes: tasks.py, views.py and worker.py on one
database.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psycopg
import pytest

from support.places import ROOT
from support.terminal import Terminal, eventually

ASKED = """
import sys
import django
django.setup()
from django.test import Client
for path in sys.argv[1:]:
    answer = Client().get(path)
    print(answer.status_code, answer.content.decode())
"""


@pytest.mark.slow
def test_django_order_and_job_commit_together_and_worker_uses_models(
    direct_dsn: str,
) -> None:
    terminal = Terminal(direct_dsn, ROOT)
    terminal.environment |= {
        "DJANGO_SETTINGS_MODULE": "examples.django_shop.settings",
        "PYTHONPATH": str(ROOT),
    }
    with psycopg.connect(direct_dsn, autocommit=True) as connection:
        connection.execute(
            "create table django_shop_order (id bigint generated always as identity primary key,"
            " mail text not null check (mail <> 'nobody'), receipt_sent boolean not null)"
        )

        def ask(*paths: str) -> list[str]:
            done = subprocess.run(
                [sys.executable, "-c", ASKED, *paths],
                cwd=ROOT,
                env=os.environ | terminal.environment,
                capture_output=True,
                text=True,
                check=False,
            )
            return done.stdout.splitlines() if done.returncode == 0 else [done.stderr]

        with terminal.program("worker", "examples.django_shop.worker:app", "-c", "4") as worker:
            worker.said("jobs at once")
            [bought] = ask("/buy?mail=ada@example.com")
            status, _, text = bought.partition(" ")
            assert status == "202", bought
            run = json.loads(text)["run"]
            [refused] = ask("/buy?mail=nobody")
            assert "violates check constraint" in refused

            eventually(
                lambda: connection.execute("select from rota.outcomes").fetchall(), within=60
            )
            worker.tell(signal.SIGTERM)
            assert worker.ended().code == 0
        assert ask(f"/receipts/{run}") == ['200 {"state": "succeeded"}']
        orders = connection.execute("select mail, receipt_sent from django_shop_order").fetchall()
        assert orders == [("ada@example.com", True)]
        [jobs] = connection.execute("select count(*) from rota.jobs").fetchall()
        assert jobs == (1,)
