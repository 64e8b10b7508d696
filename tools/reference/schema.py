"""Tables, views, types and functions of schema `rota`: the schema dump, with the comments of the
migrations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .prose import made, table

WORDS = """\
Everything is in one schema, `rota` unless `ROTA_SCHEMA` names another. The **views** and the **functions**
listed as public are stable: build on those. Tables may change between versions. Read them freely, but do
not write to them: the engine relies on their contents. How they work together:
[how it works](../explanation/how-it-works.md)."""

# Descriptions of tables that have no comment in the migration, or one for maintainers.
TOLD = {
    "jobs": "Every job, written once: its task, arguments and policy.",
    "queued": "Jobs that may be claimed now, in order. Claiming deletes the row.",
    "sleeping": "Jobs that wait for a time or a signal: a delay, a retry, a sleep.",
    "claims": "Batches of jobs held by workers, one row each; the id is the fence.",
    "outcomes": "How jobs and runs ended, one row each, for good.",
    "keys": "The run of each idempotency key.",
    "migrations": "The migrations applied to this schema.",
}

PUBLIC = {
    "start": "Start a task, in your own transaction, from any language.",
    "cancel": "Cancel a run, or one job.",
    "retry": "Retry a run that failed, expired or was cancelled; returns its queues.",
    "signal": "Send a signal to a run; returns `sent` if it is the first of its name.",
    "release": "Release a run's jobs from quarantine; returns their number.",
    "drain": "Ask a worker to finish its jobs and stop.",
    "assert_claim": "Raises RT002 unless this claim still holds the job.",
    "assert_lock": "Raises RT004 unless the lock is held under this token.",
    "assert_term": "Raises RT005 unless this is the leader's term.",
    "desired_workers": "How many workers a queue should have: one number, for KEDA and the like.",
    "clock": "The clock that decides everything that is due.",
}

TABLE = re.compile(r"^create table rota\.(\w+) \(\n(.*?)^\)", re.MULTILINE | re.DOTALL)
VIEW = re.compile(r"^create view rota\.(\w+) \(\n(.*?)^\) as$", re.MULTILINE | re.DOTALL)
ENUM = re.compile(r"^create type rota\.(\w+) as enum \((.*?)\);", re.MULTILINE)
FUNCTION = re.compile(
    r"^create function rota\.(\w+)\((.*?)\)(?: returns ([^\n]+))?\nlanguage",
    re.MULTILINE | re.DOTALL,
)
ABOVE = re.compile(
    r"((?:^--[^\n]*\n)+)create (?:table|type|function|view) rota\.(\w+)", re.MULTILINE
)
SAID = re.compile(
    r"^comment on (?:view|function) rota\.(\w+).*? is '((?:[^']|'')*)';", re.MULTILINE
)


@dataclass
class Words:
    above: dict[str, str] = field(default_factory=dict)
    columns: dict[tuple[str, str], str] = field(default_factory=dict)


def page(store: Path) -> str:
    golden = (store / "schema.sql").read_text("utf-8")
    words = Words()
    for migration in sorted((store / "migrations").glob("*.sql")):
        _read(migration.read_text("utf-8"), words)
    words.above |= {name: text.replace("''", "'") for name, text in SAID.findall(golden)}
    words.above |= TOLD
    return made("Tables, views, functions", WORDS, _parts(golden, words))


def _parts(golden: str, words: Words) -> Iterator[str]:
    yield "## Views"
    for name, inside in VIEW.findall(golden):
        yield f"### rota.{name}"
        yield words.above[name]
        yield table(["column", "type"], [_split(line) for line in inside.strip().splitlines()])
    yield "## Public functions"
    found = {name: (takes, gives) for name, takes, gives in FUNCTION.findall(golden)}
    for name, says in PUBLIC.items():
        takes, gives = found[name]
        lines = ",\n    ".join(part.strip() for part in takes.split(",\n") if part.strip())
        answers = f" returns {gives}" if gives else ""
        yield f"### rota.{name}"
        yield says
        yield f"```sql\nrota.{name}({lines}){answers}\n```"
    yield "## Tables"
    for name, inside in TABLE.findall(golden):
        if name not in words.above:
            raise SystemExit(
                f"table {name} has no comment: say above its `create table` what a row of it is"
            )
        yield f"### rota.{name}"
        yield words.above[name]
        yield table(["column", "type", ""], _columns(name, inside, words))
    yield "## Types"
    yield table(
        ["type", "values"],
        [[f"`rota.{name}`", values.replace("'", "`")] for name, values in ENUM.findall(golden)],
    )
    yield "## Functions of the engine"
    yield "Called by its own statements; they change with it."
    yield ", ".join(f"`rota.{name}`" for name in sorted(found) if name not in PUBLIC) + "."


def _columns(name: str, inside: str, words: Words) -> Iterator[list[str]]:
    for line in inside.strip().splitlines():
        column, *rest = line.strip().rstrip(",").split(" ")
        if column != "constraint":
            kind = " ".join(rest).replace("timestamp with time zone", "timestamptz")
            kind = re.sub(r' collate "C"| storage external', "", kind)
            yield [f"`{column}`", kind, words.columns.get((name, column.strip('"')), "")]


def _split(line: str) -> list[str]:
    column, kind = line.strip().rstrip(",").split(" ", 1)
    return [f"`{column}`", kind.replace("timestamp with time zone", "timestamptz")]


def _read(text: str, words: Words) -> None:
    for comment, name in ABOVE.findall(text):
        lines = (line[2:].strip() for line in comment.splitlines())
        words.above[name] = " ".join(lines)
    of, column = "", ""
    for line in text.splitlines():
        if begins := re.match(r"(?:create|alter) table rota\.(\w+)", line):
            of, column = begins[1], ""
            continue
        if line.startswith((")", "create ", "-- ")):
            of = ""
        if not of:
            continue
        if continued := re.match(r"\s{20,}-- ?(.*)", line):
            words.columns[of, column] = (
                f"{words.columns.get((of, column), '')} {continued[1]}".strip()
            )
        elif found := re.match(r"\s+(?:add column )?(\w+)\s+[^-]*?(?:-- ?(.*))?$", line):
            column = found[1]
            if found[2]:
                words.columns[of, column] = found[2].strip()
