"""The guide to web applications and its example: both behave as the guide describes."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from rota import Rota
from rota.asgi import Drain
from rota.cli.serve import serve
from support.places import ROOT
from support.server_process import serving, wait_until

GUIDE = ROOT / "docs" / "guides" / "web.md"
PAGE = GUIDE.read_text("utf-8")


def test_web_guide_example_starts_runs_and_drains(rota_dsn: str, tmp_path: Path) -> None:
    words = [
        "rota",
        "serve",
        "greetings:api",
        "--dsn",
        rota_dsn,
        "--port",
        "{port}",
        "--drain-delay",
        "0.5",
    ]
    paths = os.pathsep.join([str(ROOT / "examples"), os.environ.get("PYTHONPATH", "")])
    with serving(words, rota_dsn, tmp_path, PYTHONPATH=paths) as instance:
        instance.up()
        run = instance.ask("/greetings/Ada", "POST").body["run"]
        assert instance.ask(f"/greetings/{run}").body == {"greeting": "hello, Ada"}
        assert instance.ask("/greetings/999").status == 404
        instance.tell(signal.SIGINT)
        wait_until(lambda: not instance.is_ready(), instance)
        assert instance.ask("/health/ready").status == 503
        assert instance.ended() == 0


def test_web_guide_python_blocks_can_be_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, Any] = {"__name__": "shop"}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        exec(block, written)
    app = written["app"]
    assert isinstance(app, Rota)
    assert isinstance(written["drained"], Drain)
    paths = {getattr(each, "path", "") for each in written["api"].routes}
    assert "/paid/{number}" in paths


def test_web_guide_options_exist_in_serve_command() -> None:
    known = {name for each in serve.params for name in each.opts}
    for line in re.findall(r"rota serve (.*)", PAGE):
        for option in re.findall(r"(--[a-z-]+)", line.split("`")[0]):
            assert option in known, option


def test_web_guide_links_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (GUIDE.parent / target).exists(), target


def test_web_guide_states_the_default_timeouts() -> None:
    settings = Rota("postgresql://nowhere/").settings
    assert f"`drain_delay` ({settings.drain_delay:g} s)" in PAGE
    assert f"({settings.drain_timeout:g} s from there)" in PAGE
