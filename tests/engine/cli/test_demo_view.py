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
from rota.cli.demo.state import DemoCounters, DemoState, WorkerKill
from rota.cli.demo.view import DemoView
from rota.web.tokens_auth import LocalAccess


def terminal(width: int) -> Console:
    return Console(
        file=StringIO(),
        width=width,
        height=24,
        force_terminal=True,
        no_color=True,
        highlight=False,
        color_system=None,
    )


def written(console: Console) -> list[str]:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def full_state(console: Console) -> DemoState:
    """State with every part of the display in use; its events are printed on the console."""
    link_to = partial(LocalAccess(key="k" * 22).link, "http://127.0.0.1:8019")
    scene = DemoState(60.0, link_to=link_to, print_line=partial(view.print_line, console))
    scene.began = time.monotonic() - 31
    scene.begin_flow(123456)
    scene.rows = {
        "plain jobs": "123,456 ended, 14,000 jobs/s",
        "one by one": "88 jobs, 12.3 ms from start to result",
        "filings-monitor": "31 iterations, on worker 1, other workers stand by",
        "halts": "15 ticks of a schedule, every 2 s",
        "worker 1": "process 4194303 active, 12 of 40 slots",
        "worker 2": "process 4194304 killed",
        "worker 3": "process 4194305 active, 40 of 40 slots",
        "etl wednesday": "2 of 8 jobs ended; extract_orders, extract_payments",
        "etl thursday": "5 of 8 jobs ended; clean_part, clean_part, clean_part, clean_part, clean_part",
    }
    for number in range(9):
        scene.add_event(
            f"worker {number} was killed — its 1,234 jobs run again on worker 1 and worker 3"
        )
    return scene


def drawn(width: int) -> list[str]:
    console = terminal(width)
    console.print(DemoView(full_state(console)))
    return written(console)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_demo_view_full_state_fits_the_terminal(width: int) -> None:
    console = terminal(width)
    console.print(DemoView(full_state(Console(file=StringIO()))))

    assert len(written(console)) <= 23
    assert max(map(len, drawn(width))) <= width


def test_demo_view_80_columns_keep_important_text() -> None:
    text = "\n".join(drawn(80))

    for words in (
        f"http://127.0.0.1:8019/?key={'k' * 22}\n",
        f"http://127.0.0.1:8019/runs/123456?key={'k' * 22}",
        "31 of 60 s · Ctrl-C ends it",
        "etl wednesday",
        "2 of 8",
        "filings-monitor",
        "123,456 ended, 14,000 jobs/s",
        "4194304 killed",
        "worker 8 was killed — its 1,234 jobs run again on worker 1",
    ):
        assert words in text, words


def test_demo_view_setup_shows_the_step_and_its_time() -> None:
    console = terminal(80)
    scene = DemoState(60.0, print_line=partial(view.print_line, console))
    scene.begin_step("starting a PostgreSQL of its own")
    scene.step_began -= 7
    console.print(DemoView(scene))

    text = "\n".join(written(console))

    assert "starting a PostgreSQL of its own …" in text
    assert "7 s · Ctrl-C ends it" in text


def test_demo_event_text_is_not_markup() -> None:
    console = terminal(80)
    full_state(console).add_event("[bold]x[/bold] \x1b[2J")

    assert "[bold]x[/bold] \\x1b[2J" in "\n".join(written(console))


def demo_counters() -> DemoCounters:
    return DemoCounters(
        wave_runs=list(range(4000)),
        start_seconds=0.2,
        wave_rates=[20.0, 9876.0, 30_000.0],
        machine="4 cores with PostgreSQL 18.1",
        latencies=[0.010, 0.012, 0.2],
        flow_states=["succeeded", "running"],
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
    assert "median of 3 waves" in figures["speed"][1]
    assert "on 4 cores with PostgreSQL 18.1" in figures["speed"][1]
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
    scene = full_state(terminal(80))

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
