"""Rewrites requirements-dev.txt: every package with its hashes, without the address of a registry.

This is the only program that uses uv, which it installs into a temporary directory.
"""

import subprocess
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("local", "fast", "web", "otel", "mcp")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        python = Path(directory, "bin", "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
        # A dependency group cannot name its own project by path, so its extras are spelled out here.
        subprocess.run(
            [
                *(python, "-m", "uv", "pip", "compile", "--quiet", "--universal"),
                *("--generate-hashes", "--no-emit-index-url", "--no-header"),
                *("--python-version", "3.11", "--group", "dev", "--no-emit-package", "pgrota"),
                *(word for extra in EXTRAS for word in ("--extra", extra)),
                *("-o", "requirements-dev.txt", "pyproject.toml"),
            ],
            check=True,
            cwd=ROOT,
        )


if __name__ == "__main__":
    main()
