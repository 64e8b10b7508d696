"""The examples in the guides on testing and on changing code work as shown."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import rota.testing
from rota.testing import SimulatedResult
from support.places import ROOT

DOCS = ROOT / "docs" / "guides"

BLOCK = re.compile(r"```python\n# (\w+)\.py\n(.*?)```", re.DOTALL)


def modules(page: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """Return the modules that a page shows, imported in order."""
    made: dict[str, ModuleType] = {}
    for name, code in BLOCK.findall((DOCS / page).read_text("utf-8")):
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(code, f"{page}: {name}.py", "exec"), vars(module))
        made[name] = module
    return made


@pytest.mark.parametrize(
    ("page", "tests"), [("testing.md", "test_onboard"), ("changing-code.md", "test_june")]
)
async def test_guide_example_tests_pass(
    page: str, tests: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = modules(page, monkeypatch)[tests]
    found = [each for name, each in vars(module).items() if name.startswith("test_")]

    assert len(found) >= 3
    for test in found:
        await test()


async def test_testing_guide_printed_result_matches_simulation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tests = modules("testing.md", monkeypatch)["test_onboard"]
    said = {"survey": (tests.timedelta(days=20), {"score": 9})}

    show = await rota.testing.simulate(tests.onboard, user=42, signals=said, steps=tests.FAKES)

    assert f"```\n{show}\n```" in (DOCS / "testing.md").read_text("utf-8")


def test_testing_guide_documents_all_simulate_options_and_fields() -> None:
    page = (DOCS / "testing.md").read_text("utf-8")
    takes = inspect.signature(rota.testing.simulate.__call__).parameters

    for word, parameter in takes.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            assert f"`{word}=`" in page, word
    source = inspect.getsource(SimulatedResult)
    for word in {*re.findall(r"self\.([a-z]\w*)\b.* = ", source), "result", "error", "slept"}:
        assert f"`{word}`" in page or word in ("args", "journal", "task", "restarted_with"), word


def test_changing_code_guide_has_all_problem_titles_of_check_deploy() -> None:
    from rota.cli.check_deploy import PROBLEM_TITLES

    page = (DOCS / "changing-code.md").read_text("utf-8")

    for words in PROBLEM_TITLES.values():
        assert f"| {words} |" in page


def test_guide_links_point_to_existing_pages() -> None:
    for name in ("testing.md", "changing-code.md"):
        page = (DOCS / name).read_text("utf-8")
        for target in re.findall(r"\]\(([^)#]*)(?:#[^)]*)?\)", page):
            assert not target or (DOCS / target).exists(), target
            assert not target or Path(target).suffix == ".md"
