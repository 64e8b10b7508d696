"""Display and summary of a demo: both fit a terminal, and every figure was measured."""

from __future__ import annotations

import asyncio
import threading
import time
import webbrowser
from functools import partial
from io import StringIO

import pytest
from rich.console import Console

from rota.cli.demo import command, view
from rota.cli.demo.state import DemoCounters, DemoState, DemoWorker, ProgressRow, WorkerKill
from rota.cli.demo.view import DemoView
from rota.web.tokens_auth import LocalAccess


def full_state() -> DemoState:
    """State with every part of the display in use."""
    link_to = partial(LocalAccess(key="k" * 22).link, "http://127.0.0.1:8019")
    scene = DemoState(60.0, link_to=link_to, flow_run=123456)
    scene.began = time.monotonic() - 31
    scene.progress_rows = [
        *(
            ProgressRow(
                f"etl {day}", done, 15, f"{done} of 15", "extract_orders, extract_payments, more"
            )
            for day, done in (("wednesday", 2), ("thursday", 8), ("friday", 15))
        ),
        ProgressRow("plain jobs", 1200, 2000, "123,456", "14,000 jobs/s"),
        ProgressRow("one by one", count="88", text="12.3 ms from start to result"),
        ProgressRow("filings-monitor", count="31", text="on worker 1, others stand by"),
        ProgressRow("schedule", count="15", text="ticks, every 2 s"),
    ]
    scene.workers = [
        DemoWorker(
            1, 4194303, "active", 440, "check, extract_orders, extract_payments, square ×433"
        ),
        DemoWorker(2, 4194304, "killed", 0, ""),
        DemoWorker(3, 4194305, "active", 12, "clean_part ×12"),
    ]
    for number in range(9):
        scene.add_event(
            f"worker {number} was killed — its 1,234 jobs run again on worker 1 and worker 3"
        )
    return scene


def drawn(scene: DemoState, width: int, *, colours: bool = False) -> list[str]:
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        height=24,
        force_terminal=True,
        no_color=not colours,
        highlight=False,
        color_system="truecolor" if colours else None,
    )
    console.print(DemoView(scene))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_demo_view_full_state_fits_the_terminal(width: int) -> None:
    lines = drawn(full_state(), width)

    assert len(lines) <= 23
    assert max(map(len, lines)) <= width


def test_demo_view_80_columns_keep_important_text() -> None:
    text = "\n".join(drawn(full_state(), 80))

    for words in (
        f"http://127.0.0.1:8019/?key={'k' * 22}\n",
        f"http://127.0.0.1:8019/runs/123456?key={'k' * 22}",
        "31 of 60 s · Ctrl-C ends it",
        "etl wednesday",
        "2 of 15",
        "filings-monitor",
        "123,456 14,000 jobs/s",
        "4194304  killed",
        "worker 8 was killed — its 1,234 jobs run again on worker 1",
    ):
        assert words in text, words


def test_demo_view_without_colour_shows_progress_bars() -> None:
    wednesday, thursday, friday = [
        next(line for line in drawn(full_state(), 80) if day in line)
        for day in ("wednesday", "thursday", "friday")
    ]

    assert 0 < wednesday.count("━") < thursday.count("━") < friday.count("━")


def test_demo_view_setup_step_is_shown() -> None:
    scene = DemoState(60.0)
    scene.setup_step = "starting a PostgreSQL of its own"

    assert "starting a PostgreSQL of its own …" in "\n".join(drawn(scene, 80))


def test_demo_view_event_text_is_not_markup() -> None:
    scene = full_state()
    scene.add_event("[bold]x[/bold] \x1b[2J")

    text = "\n".join(drawn(scene, 80))

    assert "[bold]x[/bold] \\x1b[2J" in text


def demo_counters() -> DemoCounters:
    return DemoCounters(
        wave_runs=list(range(4000)),
        start_seconds=0.2,
        max_rate=9876.0,
        latencies=[0.010, 0.012, 0.2],
        flow_states={1: "succeeded", 2: "running"},
        approved=1,
        kill=WorkerKill(2, 440, 1.25, 0.5, 3.4, (1, 3), 440),
        ticks=30,
        monitor_iterations=60,
        job_states={"succeeded": 4100, "failed": 3},
        retries=41,
        duration=60.2,
    )


def summary_figures(tally: DemoCounters) -> dict[str, tuple[str, str]]:
    return {name: (what, words) for name, what, words in view.summary_lines(tally)}


def test_demo_summary_lists_every_figure() -> None:
    figures = summary_figures(demo_counters())

    assert figures["jobs"] == ("4,103", "ended in 1 min, each recorded once; 3 failed")
    assert figures["speed"][0] == "9,900 jobs/s"
    assert "started at 20,000 jobs/s" in figures["speed"][1]
    assert figures["latency"][0] == "12 ms"
    assert "the slowest of 3 took 200 ms" in figures["latency"][1]
    assert figures["retries"][0] == "41"
    assert figures["flows"] == (
        "2",
        "etl: 1 succeeded, 1 running; 1 approved by a signal",
    )
    assert figures["killed"][1] == "worker 2, with 440 jobs; detected after 1.2 s"
    assert figures["recovered"] == (
        "3.4 s",
        "after the kill all its jobs had ended, on worker 1 and worker 3; all succeeded",
    )
    assert figures["taken over"][0] == "500 ms"
    assert figures["monitor"][0] == "60 iterations"
    assert figures["ticks"] == ("30", "one every 2 s, none of them twice, none missed")


def test_demo_summary_failures_are_listed() -> None:
    bad = demo_counters()
    bad.kill = WorkerKill(2, 440, 1.25, 0.5, 3.4, (1,), 438)
    bad.duplicate_ticks, bad.missed_ticks, bad.open_jobs = 1, 2, 5

    figures = summary_figures(bad)

    assert figures["recovered"][1].endswith("; 2 did not succeed")
    assert figures["ticks"][1] == "one every 2 s, 1 of them twice, 2 missed"
    assert figures["open"][0] == "5"


def test_demo_summary_leaves_out_missing_events() -> None:
    early = DemoCounters(kill=WorkerKill(1, 7))

    assert list(summary_figures(early)) == ["killed"]
    assert "the demo stopped before its death was detected" in summary_figures(early)["killed"][1]
    assert summary_figures(DemoCounters()) == {}


def test_demo_open_browser_does_not_delay_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    closed = threading.Event()

    def browse(url: str) -> bool:
        opened.append(url)
        return closed.wait(3600)

    monkeypatch.setattr(webbrowser, "open", browse)
    scene = full_state()

    async def demo() -> None:
        scene.flow_started.set()
        await command._open_browser(scene)
        while not opened:
            await asyncio.sleep(0.001)

    try:
        asyncio.run(asyncio.wait_for(demo(), 60))
    finally:
        closed.set()
    assert opened == [scene.flow_url]
