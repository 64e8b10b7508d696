"""`tools/check_prose.py`: it finds vague words and vague openers in every kind of text."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.check_prose import faults

PLAIN = "The worker records the outcome of each job in one transaction and returns it. "


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.py", '"""Reads jobs. {}"""\n', "docstrings and comments"),
        ("a.py", "x = 1  # {}\n", "docstrings and comments"),
        ("a.py", 'x = "{}"\n', "strings of four words and more"),
        ("a.sql", "-- {}\nselect 1\n", "SQL comments"),
        ("a.md", "# Jobs\n\n{}\n", "Markdown"),
        ("a.html", "<p>{}</p>\n", "templates"),
    ],
)
def test_vague_words_are_found_in_every_kind_of_text(
    tmp_path: Path, name: str, text: str, kind: str
) -> None:
    file = tmp_path / name
    file.write_text(text.format(PLAIN))
    assert list(faults([file])) == []

    file.write_text(text.format(PLAIN + "Whoever came to it has it."))
    first, *found = faults([file])
    assert first.startswith(f"{kind}: ")
    assert [line.rsplit(": ")[-1] for line in found] == ["'Whoever'", "'came to'"]


def test_three_vague_words_in_a_thousand_are_allowed(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("word " * 997 + "who who who\n")
    assert list(faults([file])) == []

    file.write_text("word " * 996 + "who who who who\n")
    assert next(faults([file])) == "Markdown: 4.0 vague words in 1,000, more than 3:"


def test_code_in_markdown_and_templates_is_not_text(tmp_path: Path) -> None:
    page, template = tmp_path / "a.md", tmp_path / "a.html"
    page.write_text("A job.\n\n```\nwho whom\n```\n\n`whose`\n")
    template.write_text("<p who=1>{{ whom }}{% if whose %}A job.{% endif %}</p>\n")
    assert list(faults([page, template])) == []


def test_docstring_that_begins_with_a_vague_word_is_found(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text('def f() -> None:\n    """Whether it runs."""\n\n\nx = 1\n"""How it is."""\n')
    assert sorted(faults([file])) == [
        "a.py:2: a docstring begins with a vague word: Whether it runs.",
        "a.py:6: a docstring begins with a vague word: How it is.",
    ]
