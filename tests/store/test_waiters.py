"""Waiters register before they check; a recorder of an outcome commits before it notifies."""

from __future__ import annotations

from rota.store import listeners
from support.stage import Connection, Stage


async def receive_notifications(connection: Connection, count: int) -> list[tuple[str, str]]:
    notes = connection.notifies(timeout=60, stop_after=count)
    return [(note.channel, note.payload) async for note in notes]


async def insert_finished(stage: Stage, *ids: int) -> None:
    """Insert jobs with these ids that have ended."""
    for id in ids:
        await stage.sql(
            "insert into rota.jobs (id, task, queue, args) values (%s, 'work', 'default', '{}')", id
        )
        await stage.sql(
            "insert into rota.outcomes (job, state, attempt) values (%s, 'succeeded', 1)", id
        )


async def test_notify_waiters_of_open_run_keeps_the_waiter(stage: Stage) -> None:
    run = await stage.start()
    await stage.run(listeners.register("rota.a", [run]))

    await stage.run(listeners.notify_waiters([run]))

    assert await stage.sql("select job from rota.waiters") == [run]


async def test_notify_waiters_notifies_each_waiter_once(stage: Stage) -> None:
    listener = await stage.connect()
    await stage.sql('listen "rota.a"', on=listener)
    await stage.run(listeners.register("rota.a", [7, 8]))
    await stage.run(listeners.register("rota.a", [7]))
    await insert_finished(stage, 7, 8)

    await stage.run(listeners.notify_waiters([7, 9]))
    await stage.run(listeners.notify_waiters([7]))
    await stage.run(listeners.notify_waiters([8]))

    assert await receive_notifications(listener, 2) == [("rota.a", "7"), ("rota.a", "8")]
    assert await stage.sql("select job from rota.waiters") == []


async def test_notify_waiters_notifies_every_listener_of_a_job(stage: Stage) -> None:
    listener = await stage.connect()
    for name in ("rota.a", "rota.b"):
        await stage.sql(f'listen "{name}"', on=listener)
        await stage.run(listeners.register(name, [7]))
    await insert_finished(stage, 7)

    await stage.run(listeners.notify_waiters([7]))

    assert set(await receive_notifications(listener, 2)) == {("rota.a", "7"), ("rota.b", "7")}


async def test_unregister_removes_only_given_listener_and_job(stage: Stage) -> None:
    for name in ("rota.a", "rota.b"):
        await stage.run(listeners.register(name, [7, 8]))

    await stage.run(listeners.unregister("rota.a", [7]))

    assert await stage.sql("select listener, job from rota.waiters order by 1, 2") == [
        *(("rota.a", 8), ("rota.b", 7), ("rota.b", 8)),
    ]


async def test_waiter_registered_before_commit_is_notified_after_commit(stage: Stage) -> None:
    """In both orders in which they can meet, one of the two sees the other."""
    batch = await stage.held(1)
    completing, telling = await stage.connect(engine=True), await stage.connect(engine=True)

    async with completing.transaction():
        await stage.complete(batch, on=completing)
        # Notified before the commit, the waiter is not registered yet; so the notification follows the
        # commit …
        await stage.run(listeners.notify_waiters(batch.jobs), telling)
        await stage.run(listeners.register("rota.a", batch.jobs))
        assert await stage.sql("select job from rota.outcomes") == []

    # … and reaches the waiter that found no outcome.
    await stage.run(listeners.notify_waiters(batch.jobs), telling)
    assert await stage.sql("select job from rota.waiters") == []


async def test_notify_sends_one_message_per_queue(stage: Stage) -> None:
    listener = await stage.connect()
    await stage.sql('listen "rota.wake"', on=listener)

    await stage.run(listeners.notify("rota.wake", ["images", "mail"]))

    assert await receive_notifications(listener, 2) == [
        ("rota.wake", "images"),
        ("rota.wake", "mail"),
    ]
