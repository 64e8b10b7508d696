"""Log lines: the fields that Rota's formatter and filter add for the current job."""

from __future__ import annotations

import asyncio
import json
import logging
import logging.handlers
import queue
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rota import Context, Retry, Rota, RunFailed
from rota.logs import FIELDS, JobFilter, JsonFormatter, TextFormatter
from rota.testing import Harness
from support import isolated_tasks
from support.exported_spans import ExportedSpans, id_of, trace_of

log = logging.getLogger("shop.orders")
SECRET = "hunter2"


class CollectedLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def of(self, logger: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.lines]
        return [each for each in found if each["logger"] == logger]

    def one(self, message: str) -> dict[str, Any]:
        [found] = [each for each in map(json.loads, self.lines) if each["message"] == message]
        assert isinstance(found, dict)
        return found


@pytest.fixture
def lines() -> Iterator[CollectedLines]:
    handler = CollectedLines()
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


async def test_log_line_has_the_fields_of_its_job(rota_app: Rota, lines: CollectedLines) -> None:
    def in_a_step() -> None:
        log.info("in a step")

    @rota_app.task(retry=Retry(max_attempts=2, delay=0))
    async def work(ctx: Context) -> None:
        log.info("in a coroutine")
        await asyncio.to_thread(log.info, "in a thread of it")
        await ctx.step("one", in_a_step)
        if ctx.attempt == 1:
            raise ValueError

    @rota_app.task
    def toil(ctx: Context) -> None:
        log.warning("in a thread")

    flow = rota_app.flow("pair")

    @flow.task
    async def one() -> None:
        log.info("in a flow")

    log.info("beside them")
    async with rota_app.worker() as worker:
        first = await work.start()
        await first.result(timeout=60)
        second = await toil.start()
        await second.result(timeout=60)
        whole = await flow.start()
        await whole.result(timeout=60)
        number = worker.id
    log.info("after them")

    tried = {"worker": number, "run": first.id, "job": first.id, "task": "work"}
    said = lines.of("shop.orders")
    assert [_job_fields(each) for each in said if each["message"] == "in a coroutine"] == [
        {**tried, "attempt": 1},
        {**tried, "attempt": 2},
    ]
    for message in ("in a thread of it", "in a step"):
        found = [_job_fields(each) for each in said if each["message"] == message]
        assert found[0] == {**tried, "attempt": 1}
    of_thread = lines.one("in a thread")
    assert _job_fields(of_thread) == {
        "worker": number,
        "run": second.id,
        "job": second.id,
        "task": "toil",
        "attempt": 1,
    }
    assert of_thread["level"] == "warning"
    in_flow = lines.one("in a flow")
    assert in_flow["run"] == whole.id
    assert in_flow["job"] != whole.id
    for message in ("beside them", "after them"):
        assert _job_fields(lines.one(message)) == {}


async def test_log_line_written_by_rota_has_the_fields_of_its_job(
    rota_app: Rota, lines: CollectedLines
) -> None:
    @rota_app.task(retry=Retry(max_attempts=1))
    async def fails() -> None:
        raise ValueError

    async with rota_app.worker():
        run = await fails.start()
        with pytest.raises(RunFailed):
            await run.result(timeout=60)

    [told] = [each for each in lines.of("rota") if "it will not be retried" in each["message"]]
    assert (told["run"], told["job"], told["task"], told["attempt"]) == (run.id, run.id, "fails", 1)


async def test_log_line_of_failure_has_message_and_last_one_the_exception(
    rota_app: Rota, lines: CollectedLines
) -> None:
    raised: list[BaseException | None] = []

    class ErrorReporter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                raised.append(record.exc_info[1])

    @rota_app.task(retry=Retry(max_attempts=2, delay=0))
    async def charge() -> None:
        raise ValueError("no such customer: 42")

    logging.getLogger().setLevel(logging.INFO)  # debug adds the exceptions of retried attempts
    reporter = ErrorReporter()
    logging.getLogger("rota").addHandler(reporter)
    try:
        async with rota_app.worker():
            with pytest.raises(RunFailed):
                await (await charge.start()).result(timeout=60)
    finally:
        logging.getLogger("rota").removeHandler(reporter)

    retried, failed = [each for each in lines.of("rota") if "(charge) failed" in each["message"]]
    assert "attempt 1: ValueError: no such customer: 42; retrying in" in retried["message"]
    assert (retried["level"], "exception" in retried) == ("warning", False)
    assert "attempt 2: ValueError: no such customer: 42; it will not" in failed["message"]
    assert failed["level"] == "error"
    assert failed["exception"].endswith("ValueError: no such customer: 42")
    assert "/rota/engine/" not in failed["exception"]
    assert [str(each) for each in raised] == ["no such customer: 42"]


async def test_log_line_of_isolated_failure_has_the_traceback_of_its_process(
    rota_dsn: str, lines: CollectedLines
) -> None:
    once = Retry(max_attempts=1)
    async with Harness(isolated_tasks.app, rota_dsn) as harness, harness.app.worker():
        with pytest.raises(RunFailed):
            await (await isolated_tasks.raises.options(retry=once).start()).result(timeout=60)

    [failed] = [each for each in lines.of("rota") if "it will not be retried" in each["message"]]
    assert "isolated_tasks.py" in failed["exception"]
    assert failed["exception"].endswith("LookupError: nothing there")


async def test_log_line_with_control_characters_in_error_stays_one_line(
    rota_app: Rota, lines: CollectedLines
) -> None:
    @rota_app.task(retry=Retry(max_attempts=1))
    async def forge() -> None:
        raise ValueError("first\nsecond \x1b[31mred \u202ereversed" + "x" * 1000)

    async with rota_app.worker():
        with pytest.raises(RunFailed):
            await (await forge.start()).result(timeout=60)

    [failed] = [each for each in lines.of("rota") if "(forge) failed" in each["message"]]
    assert "ValueError: first second \\x1b[31mred \\u202ereversedxxx" in failed["message"]
    assert len(failed["message"]) < 700


async def test_log_line_has_trace_and_span_ids(
    rota_app: Rota, lines: CollectedLines, exported: ExportedSpans
) -> None:
    def in_a_step() -> None:
        log.info("in a step")

    @rota_app.task
    async def work(ctx: Context) -> None:
        log.info("in a job")
        await ctx.step("one", in_a_step)

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)

    for message, name in (("in a job", "run work"), ("in a step", "step one")):
        line, span = lines.one(message), exported.one(name)
        assert line["trace_id"] == f"{trace_of(span):032x}"
        assert line["span_id"] == f"{id_of(span):016x}"


async def test_log_lines_contain_no_payload(
    rota_harness: Harness, lines: CollectedLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments, results, steps, signals and keys are not logged at any level, also not with an error."""
    app = rota_harness.app
    app.subscribe(lambda event: logging.getLogger("rota").debug("%s", event))

    def charge(card: str) -> str:
        raise PermissionError("refused")

    @app.task(retry=Retry(max_attempts=2, delay=0))
    async def pay(ctx: Context, card: str) -> str:
        await ctx.step("keep", str, card)
        await ctx.wait_signal("go", str)
        await ctx.map([other.bind(card)], return_exceptions=True)
        await ctx.step("charge", charge, card)
        return card

    @app.task(retry=Retry(max_attempts=1))
    def other(card: str) -> str:
        raise RuntimeError("broken")

    @app.task
    async def echo(card: str) -> str:
        return card

    async with app.worker():
        run = await pay.options(key=SECRET).start(SECRET)
        await run.signal("go", SECRET)
        with pytest.raises(RunFailed, match="refused"):
            await run.result(timeout=60)
        assert await (await echo.start(SECRET)).result(timeout=60) == SECRET

    assert len(lines.lines) > 10
    assert SECRET not in "".join(lines.lines)


async def test_context_variables_do_not_leak_between_jobs(rota_app: Rota) -> None:
    """Context variables do not leak from a job into the next one, which starts where it ends."""
    from contextvars import ContextVar

    user: ContextVar[str] = ContextVar("user", default="nobody")
    found: list[str] = []

    @rota_app.task
    async def one(name: str) -> None:
        found.append(user.get())
        user.set(name)

    @rota_app.task
    def two(name: str) -> None:
        found.append(user.get())
        user.set(name)

    async with rota_app.worker(concurrency=1):
        runs = await rota_app.start_many(
            [task.bind(name) for task in (one, two, one) for name in "ab"]
        )
        for run in runs:
            await run.result(timeout=60)

    assert found == ["nobody"] * 6


# Without a worker


def record(message: object = "said", *args: object, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("shop", logging.WARNING, __file__, 1, message, args, None)
    vars(made).update(more)
    return made


def test_json_formatter_writes_the_standard_fields() -> None:
    made = record("%s of %s", 1, 2, created=0.5, process=7)

    assert json.loads(JsonFormatter().format(made)) == {
        "time": "1970-01-01T00:00:00.500000Z",
        "level": "warning",
        "logger": "shop",
        "message": "1 of 2",
        "process": 7,
    }


def test_json_formatter_exception_and_stack_are_text() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        made = record(exc_info=sys.exc_info(), stack_info="Stack (most recent call last):\n  here")

    line = JsonFormatter().format(made)

    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: no")
    assert json.loads(line)["stack"].endswith("here")


def test_json_formatter_unusual_extras_do_not_prevent_the_line() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "<odd>"

    itself: list[Any] = []
    itself.append(itself)

    line = json.loads(JsonFormatter().format(record(order=7, odd=Odd())))
    assert line["extra"] == {"order": 7, "odd": "<odd>"}
    for more in ({"name_": "\ud800"}, {"itself": itself}, {"huge": {1: {2: object()}}}):
        assert json.loads(JsonFormatter().format(record(**more)))["message"] == "said"
    assert json.loads(JsonFormatter().format(record("half \ud800")))["message"] == "half \\ud800"


def test_job_filter_adds_fields_for_any_formatter() -> None:
    formatter = logging.Formatter("%(job)s %(attempt)s %(trace_id)s %(message)s")
    made = record(job=9)

    assert JobFilter().filter(made)
    assert formatter.format(made) == "9 None None said"
    assert all(hasattr(made, name) for name in FIELDS)


async def test_job_filter_before_queue_handler_reads_the_current_job(rota_app: Rota) -> None:
    lines = CollectedLines()
    many: queue.SimpleQueue[Any] = queue.SimpleQueue()
    handler = logging.handlers.QueueHandler(many)
    handler.addFilter(JobFilter())
    log.addHandler(handler)
    listener = logging.handlers.QueueListener(many, lines)
    listener.start()

    @rota_app.task
    async def work() -> None:
        log.warning("in a job")

    try:
        async with rota_app.worker():
            run = await work.start()
            await run.result(timeout=60)
    finally:
        log.removeHandler(handler)
        listener.stop()
    assert lines.one("in a job")["job"] == run.id


def test_text_formatter_names_the_job_of_application_lines() -> None:
    plain = TextFormatter()
    made = record(created=0.5, process=7, msecs=500.0)
    assert plain.format(made) == "1970-01-01 00:00:00.500Z warning [7] said"
    made = record(created=0.5, process=7, msecs=500.0, job=9, attempt=2)
    assert plain.format(made) == "1970-01-01 00:00:00.500Z warning [7] (job 9, attempt 2) said"
    ours = record(created=0.5, process=7, msecs=500.0, job=9, attempt=2, name="rota")
    assert plain.format(ours) == "1970-01-01 00:00:00.500Z warning [7] said"
    coloured = TextFormatter(colour=True).format(record())
    assert "\x1b[33mwarning\x1b[0m" in coloured


def _job_fields(line: dict[str, Any]) -> dict[str, Any]:
    return {name: line[name] for name in FIELDS if name in line}
