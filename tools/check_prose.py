"""Checks how plainly the tree is written; `make check` runs it.

    vague words     those of the pattern VAGUE: at most 3 in 1,000 words, for each kind of text; in tests 10
    docstrings      none begins with What, Who, Whether, How or the like; tests are not checked
    tests           names have at most 70 characters and no vague word

Kinds of text: docstrings and comments, SQL comments, Markdown, templates, strings of four words and more.
Folders are added to FINISHED when they are rewritten, and are never removed.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FINISHED = (
    *("src", "docs", "examples", "benchmarks", "deploy", "tools", ".github"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md"),
)
"""Folders and files that are checked."""

TESTS = ("tests",)

MAX_VAGUE = 3.0
MAX_VAGUE_IN_TESTS = 10.0
"""Vague words in 1,000."""

MAX_TEST_NAME = 70

VAGUE = re.compile(
    r"\b(who|whoever|whom|whose|what|whatever|somebody|someone|nobody|anybody|everybody|others|anew|"
    r"he|him|his|himself|came to|comes to|come to|see to|sees to)\b",
    re.IGNORECASE,
)
OPENER = re.compile(
    r"^(What|Who|Whoever|Whose|Whether|How|Where|When|Why|Which|That|One|Those|All|Of|It)\b"
)
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
MARKDOWN_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
TEMPLATE_CODE = re.compile(r"\{[%{#].*?[%}#]\}|<[^>]*>", re.DOTALL)
IGNORED_COMMENTS = ("# type:", "# noqa", "#!")

Text = tuple[str, int, str]
"""Kind, line and text of one passage."""


def texts(path: Path) -> Iterator[Text]:
    """Yield the prose of a file."""
    source = path.read_text("utf-8")
    match path.suffix:
        case ".py":
            yield from _python(source)
        case ".sql":
            for number, line in enumerate(source.splitlines(), 1):
                if "--" in line:
                    yield "SQL comments", number, line.partition("--")[2]
        case ".md":
            yield "Markdown", 1, MARKDOWN_CODE.sub(_blank, source)
        case ".html":
            yield "templates", 1, TEMPLATE_CODE.sub(_blank, source)


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n") or " "


def _python(source: str) -> Iterator[Text]:
    docstrings = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and (text := _text(node.value)) is not None:
            docstrings.add(id(node.value))
            yield "docstrings and comments", node.lineno, text
    for node in ast.walk(tree):
        shown = "" if id(node) in docstrings else _text(node) or ""
        if len(shown.split()) >= 4:
            yield "strings of four words and more", getattr(node, "lineno", 0), shown
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(IGNORED_COMMENTS):
            yield "docstrings and comments", token.start[0], token.string.lstrip("# ")


def _text(node: ast.AST) -> str | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None


def openers(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a Python file that begin with a vague word."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Expr) and (text := _text(node.value)) is not None:
            first = text.strip().split("\n")[0]
            if OPENER.match(first):
                yield node.lineno, first


def files(places: tuple[str, ...]) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *places],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = (name for name in listed.stdout.decode().split("\0") if name)
    kinds = (".py", ".sql", ".md", ".html")
    found = (ROOT / name for name in names)
    # This file lists the vague words.
    return sorted(p for p in found if p.suffix in kinds and p.is_file() and p != Path(__file__))


def faults(paths: Iterable[Path], max_vague: float = MAX_VAGUE) -> Iterator[str]:
    """Yield a line for each fault in the files, counted over all of them together."""
    words: Counter[str] = Counter()
    vague: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        for kind, line, text in texts(path):
            words[kind] += len(WORD.findall(text))
            for word in VAGUE.finditer(text):
                at = line + text.count("\n", 0, word.start())
                vague[kind].append(f"{name}:{at}: {word[0]!r}")
        if path.suffix == ".py" and max_vague == MAX_VAGUE:
            for line, first in openers(path):
                yield f"{name}:{line}: a docstring begins with a vague word: {first[:60]}"
    for kind, found in vague.items():
        rate = 1000 * len(found) / words[kind]
        if rate > max_vague:
            yield f"{kind}: {rate:.1f} vague words in 1,000, more than {max_vague:g}:"
            yield from (f"  {each}" for each in found)


def test_names(paths: Iterable[Path]) -> Iterator[str]:
    """Yield a line for each test whose name is too long or has a vague word."""
    for path in paths:
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = node.name if node.name.startswith("test_") else ""
                at = f"{path.name}:{node.lineno}"
                if len(name) > MAX_TEST_NAME:
                    yield f"{at}: the name of a test has {len(name)} characters: {name}"
                if vague := VAGUE.search(name.replace("_", " ")):
                    yield f"{at}: the name of a test has the vague word {vague[0]!r}: {name}"


def main() -> int:
    if places := tuple(sys.argv[1:]):
        found = list(faults(files(places)))
    else:
        tests = files(TESTS)
        found = [*faults(files(FINISHED)), *faults(tests, MAX_VAGUE_IN_TESTS), *test_names(tests)]
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
