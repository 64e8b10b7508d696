"""`tools/check_prose.py`: it finds vague words and vague openers in every kind of text."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.check_prose import faults
from tools.check_prose import test_names as check_test_names

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
def test_prose_vague_words_are_found_in_every_kind_of_text(
    tmp_path: Path, name: str, text: str, kind: str
) -> None:
    file = tmp_path / name
    file.write_text(text.format(PLAIN))
    assert list(faults([file])) == []

    file.write_text(text.format(PLAIN + "Whoever came to it has it."))
    first, *found = faults([file])
    assert first.startswith(f"{kind}: ")
    assert [line.rsplit(": ")[-1] for line in found] == ["'Whoever'", "'came to'"]


def test_prose_three_vague_words_in_a_thousand_are_allowed(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("word " * 997 + "who who who\n")
    assert list(faults([file])) == []

    file.write_text("word " * 996 + "who who who who\n")
    assert next(faults([file])) == "Markdown: 4.0 vague words in 1,000, more than 3:"


def test_prose_code_in_markdown_and_templates_is_ignored(tmp_path: Path) -> None:
    page, template = tmp_path / "a.md", tmp_path / "a.html"
    page.write_text("A job.\n\n```\nwho whom\n```\n\n`whose`\n")
    template.write_text("<p who=1>{{ whom }}{% if whose %}A job.{% endif %}</p>\n")
    assert list(faults([page, template])) == []


def test_prose_docstring_beginning_with_vague_word_is_found(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text('def f() -> None:\n    """Whether it runs."""\n\n\nx = 1\n"""How it is."""\n')
    assert sorted(faults([file])) == [
        "a.py:2: a docstring begins with a vague word: Whether it runs.",
        "a.py:6: a docstring begins with a vague word: How it is.",
    ]


def test_test_name_that_is_long_or_vague_is_found(tmp_path: Path) -> None:
    file = tmp_path / "test_a.py"
    long = "test_" + "x" * 66
    file.write_text(
        f"def {long}(): ...\n\n\ndef test_nobody_waits(): ...\n\n\ndef test_lock_expires(): ...\n"
    )
    assert list(check_test_names([file])) == [
        f"test_a.py:1: the name of a test has 71 characters: {long}",
        "test_a.py:4: the name of a test has the vague word 'nobody': test_nobody_waits",
    ]
