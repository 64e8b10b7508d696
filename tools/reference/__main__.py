"""Write the generated pages, and refresh the code that other pages include from files."""

from __future__ import annotations

from pathlib import Path

from . import PLACE, ROOT, pages, snippets


def main() -> None:
    for name, text in pages().items():
        _write(PLACE / name, text)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        _write(page, snippets.refreshed(page.read_text("utf-8"), ROOT))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
