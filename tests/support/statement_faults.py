"""Faults of single statements: the server answers a chosen statement with an error of a chosen SQLSTATE.

The statement is replaced by one that raises the error on the server, so that connection, transaction and
pipeline are in the state that a real error leaves them in.
"""

from __future__ import annotations

import threading
from collections import Counter

import psycopg
import pytest

from rota.store import query

_RAISE = """
create function public.fail(code text) returns void language plpgsql as $$
begin
    raise exception 'injected' using errcode = code;
end $$
"""


class StatementFaults:
    """Statements that fail, each as often as it was asked for. All threads of the process are affected."""

    def __init__(self, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: set[str] = set()
        self.failed: Counter[tuple[str, str]] = Counter()
        """Number of failures by statement and SQLSTATE."""
        self._pending: dict[str, tuple[str, int]] = {}
        self._first_code: str | None = None
        self._lock = threading.Lock()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(_RAISE)
        monkeypatch.setattr("rota.store.database.encoded", self._encoded)

    def fail(self, statement: str, code: str, times: int = 1) -> None:
        with self._lock:
            self._pending[statement] = (code, times)

    def fail_first_use(self, code: str) -> None:
        """Let every statement fail the next time that it is used."""
        with self._lock:
            self.seen.clear()
            self._first_code = code

    def stop(self) -> None:
        with self._lock:
            self._pending.clear()
            self._first_code = None

    def _encoded(self, statement: str, schema: str) -> bytes:
        code = self._next_fault(statement)
        if code is not None:
            return f"select public.fail('{code}')".encode()
        return query.encoded(statement, schema)

    def _next_fault(self, statement: str) -> str | None:
        with self._lock:
            code, times = self._pending.pop(statement, (self._first_code, 0))
            if times > 1 and code is not None:
                self._pending[statement] = (code, times - 1)
            elif times == 0 and statement in self.seen:
                code = None
            self.seen.add(statement)
            if code is not None:
                self.failed[statement, code] += 1
            return code
