"""The proxy forwards everything, and breaks exactly the connections and commits that a test asks for."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator

import psycopg
import pytest

from rota.testing.proxy.protocol import MessageSplitter, TurnTracker
from rota.testing.proxy.proxy import Proxy

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def proxy(rota_dsn: str) -> Iterator[Proxy]:
    with psycopg.connect(rota_dsn, autocommit=True) as connection:
        connection.execute("create table public.kept (n int)")
    with Proxy(rota_dsn) as proxy:
        yield proxy


OPENED: list[Connection] = []


def connect(proxy: Proxy, name: str | None = None) -> Connection:
    connection = psycopg.connect(proxy.dsn_for(name), autocommit=True, connect_timeout=2)
    OPENED.append(connection)
    return connection


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def stored_numbers(dsn: str) -> list[int]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return [n for (n,) in connection.execute("select n from public.kept order by n")]


def test_proxy_without_fault_forwards_every_protocol_form(proxy: Proxy, rota_dsn: str) -> None:
    with connect(proxy) as connection:
        connection.execute("insert into public.kept values (%s)", (1,), prepare=True)
        with connection.transaction():
            connection.execute("insert into public.kept values (2)")
        with connection.cursor().copy("copy public.kept from stdin") as copy:
            copy.write_row((3,))
        with connection.pipeline():
            connection.execute("insert into public.kept values (4)")
            found = connection.execute("select count(*) from public.kept")
        assert found.fetchone() == (4,)
        long = connection.execute("select repeat('x', 5000000)").fetchone()
        assert long is not None
        assert len(str(long[0])) == 5_000_000
    assert stored_numbers(rota_dsn) == [1, 2, 3, 4]


def test_proxy_cut_after_answer_hides_a_completed_commit(proxy: Proxy, rota_dsn: str) -> None:
    proxy.cut("answered")
    connection = connect(proxy)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("insert into public.kept values (1)")

    [cut] = proxy.wait_for_cuts()
    assert cut.committed is True
    assert stored_numbers(rota_dsn) == [1]


def test_proxy_cut_before_commit_commits_nothing(proxy: Proxy, rota_dsn: str) -> None:
    proxy.cut("before")
    connection = connect(proxy)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("insert into public.kept values (1)")

    assert proxy.wait_for_cuts()[0].committed is False
    assert stored_numbers(rota_dsn) == []


def test_proxy_cut_late_commits_after_client_was_disconnected(proxy: Proxy, rota_dsn: str) -> None:
    proxy.cut("late", hold_seconds=1.0)
    connection = connect(proxy)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("insert into public.kept values (1)")
    assert stored_numbers(rota_dsn) == []

    assert proxy.wait_for_cuts()[0].committed is True
    assert stored_numbers(rota_dsn) == [1]


@pytest.mark.parametrize("pipelined", [False, True])
def test_proxy_cut_in_transaction_affects_only_the_commit(
    proxy: Proxy, rota_dsn: str, *, pipelined: bool
) -> None:
    proxy.cut("sent")
    connection = connect(proxy)
    seen = []

    def work() -> None:
        with connection.transaction():
            for n in (1, 2):
                connection.execute("insert into public.kept values (%s)", (n,))
                seen.append(connection.execute("select 1").fetchone())

    def work_in_a_pipeline() -> None:
        with connection.pipeline():
            work()

    with pytest.raises(psycopg.OperationalError):
        work_in_a_pipeline() if pipelined else work()

    assert proxy.wait_for_cuts()[0].committed is True
    assert seen == [(1,), (1,)]
    assert stored_numbers(rota_dsn) == [1, 2]


def test_proxy_cut_in_pipeline_forwards_earlier_answers(proxy: Proxy, rota_dsn: str) -> None:
    """Two transactions in one pipeline: the second is cut, and the answer of the first arrives."""
    proxy.cut("answered", matching=r"values \(2\)")
    connection = connect(proxy)
    seen = []

    def work() -> None:
        with connection.pipeline() as pipeline:
            first = connection.execute("insert into public.kept values (1) returning n")
            pipeline.sync()
            connection.execute("insert into public.kept values (2)")
            seen.append(first.fetchone())

    with pytest.raises(psycopg.OperationalError):
        work()

    assert seen == [(1,)]
    assert proxy.wait_for_cuts()[0].committed is True
    assert stored_numbers(rota_dsn) == [1, 2]


def test_proxy_cut_failed_transaction_is_not_committed(proxy: Proxy, rota_dsn: str) -> None:
    connection = connect(proxy)
    proxy.cut("answered")
    connection.execute("begin")
    connection.execute("insert into public.kept values (1)")
    with pytest.raises(psycopg.DataError):
        connection.execute("select 1 / 0")
    with pytest.raises(psycopg.OperationalError):
        connection.execute("commit")

    assert proxy.wait_for_cuts()[0].committed is False
    assert stored_numbers(rota_dsn) == []


def test_proxy_cut_applies_only_to_matching_statement_and_client(
    proxy: Proxy, rota_dsn: str
) -> None:
    proxy.cut("answered", matching="public.kept", application="unlucky")
    with connect(proxy, "lucky") as lucky:
        lucky.execute("insert into public.kept values (1)")
    unlucky = connect(proxy, "unlucky")
    unlucky.execute("create temporary table other as select 1")
    unlucky.execute("select n from public.kept for update")
    with pytest.raises(psycopg.OperationalError):
        unlucky.execute("insert into public.kept values (2)")

    [cut] = proxy.wait_for_cuts()
    assert (cut.application, b"".join(cut.statements).count(b"kept")) == ("unlucky", 1)
    assert stored_numbers(rota_dsn) == [1, 2]


def test_proxy_cancel_cuts_removes_pending_cuts(proxy: Proxy) -> None:
    proxy.cut("answered")
    assert proxy.cancel_cuts() == 1
    with connect(proxy) as connection:
        connection.execute("insert into public.kept values (1)")
    assert proxy.cuts == []
    with pytest.raises(TimeoutError, match="0 of 1"):
        proxy.wait_for_cuts(timeout=0.1)


def test_proxy_reset_breaks_connection_at_once(proxy: Proxy) -> None:
    connection = connect(proxy)
    assert proxy.reset() == 1
    with pytest.raises(psycopg.OperationalError):
        connection.execute("select 1")
    with connect(proxy) as again:
        assert again.execute("select 1").fetchone() == (1,)


SESSIONS = "select count(*) from pg_stat_activity where application_name = 'lonely'"


def sessions(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(SESSIONS).fetchone()
        assert row is not None
        return int(row[0])


def test_proxy_drop_silences_connection_and_keeps_session(proxy: Proxy, rota_dsn: str) -> None:
    lonely = connect(proxy, "lonely")
    with connect(proxy, "other") as other:
        assert proxy.drop(application="lonely") == 1
        assert not has_answer(lonely)
        with pytest.raises(psycopg.OperationalError):
            connect(proxy, "lonely")
        assert other.execute("select 1").fetchone() == (1,)
        assert sessions(rota_dsn) == 1  # the server has not noticed

        proxy.heal()
        with connect(proxy, "lonely") as again:
            assert again.execute("select 1").fetchone() == (1,)
        assert not has_answer(lonely, again=False)


def test_proxy_half_open_ends_only_one_side(proxy: Proxy, rota_dsn: str) -> None:
    lonely = connect(proxy, "lonely")
    assert proxy.half_open("client", application="lonely") == 1
    with pytest.raises(psycopg.OperationalError):
        lonely.execute("select 1")
    assert sessions(rota_dsn) == 1

    believer = connect(proxy, "believer")
    assert proxy.half_open("server", application="believer") == 1
    assert not has_answer(believer)


def test_proxy_hold_delays_messages_until_heal(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        healing = threading.Event()

        def heal() -> None:
            healing.set()
            proxy.heal()

        proxy.hold()
        threading.Timer(0.3, heal).start()
        assert connection.execute("select 1").fetchone() == (1,)
        assert healing.is_set()


def test_proxy_refuse_rejects_new_connections(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(psycopg.OperationalError):
        connect(proxy)
    proxy.heal()
    connect(proxy).close()


def has_answer(connection: Connection, *, again: bool = True) -> bool:
    """True if the connection has data to read within a moment."""
    if again:
        connection.pgconn.send_query(b"select 1")
        connection.pgconn.flush()
    return bool(select.select([connection.pgconn.socket], [], [], 0.3)[0])


def test_message_splitter_any_chunk_size_finds_messages() -> None:
    stream = b"Q\x00\x00\x00\x0dselect 1\x00" + b"X\x00\x00\x00\x04"
    for size in range(1, len(stream)):
        frames = MessageSplitter(typed=True)
        found = [
            message
            for at in range(0, len(stream), size)
            for message in frames.feed(stream[at : at + size])
        ]
        assert found == [stream[:14], stream[14:]]


@pytest.mark.parametrize(
    ("said", "commits"),
    [
        (["select 1"], [False]),
        (["select 1 from t for update"], [False]),
        (["select 1 from t for no key update"], [False]),
        (["with a as (update t set n = 1) select 1"], [True]),
        (["begin", "insert into t values (1)", "commit"], [False, False, True]),
        (["begin", "select 1", "commit"], [False, False, False]),
        (["begin", "delete from t", "rollback", "select 1"], [False] * 4),
        (["begin", "delete from t", "rollback to a", "commit"], [False, False, False, True]),
        (["begin; insert into t values (1); commit"], [True]),
    ],
)
def test_turn_tracker_detects_statements_that_commit(said: list[str], commits: list[bool]) -> None:
    turns = TurnTracker()
    found = []
    for text in said:
        body = text.encode() + b"\0"
        turn = turns.on_client_message(b"Q" + (len(body) + 4).to_bytes(4, "big") + body)
        assert turn is not None
        found.append(turn.commits)
    assert found == commits


def test_proxy_exit_closes_open_connections(rota_dsn: str) -> None:
    with Proxy(rota_dsn) as proxy:
        connection = connect(proxy, "lonely")
        proxy.drop()
    with pytest.raises(psycopg.OperationalError):
        connection.execute("select 1")
