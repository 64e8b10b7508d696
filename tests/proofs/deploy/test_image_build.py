"""The image, built as far as possible without a Docker daemon: its own steps, in a temporary directory.

This takes a minute and requires access to the package index.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.container_image import IMAGE, context, last_instruction
from support.dockerfile import exec_form_words
from support.places import ROOT
from support.terminal import Terminal


@pytest.mark.timeout(900)
def test_image_build_steps_give_a_working_installation(tmp_path: Path, rota_dsn: str) -> None:
    """Run the image's steps here: the same sources into a new environment, with the same entry point."""
    place, made, app = tmp_path / "source", tmp_path / "opt/rota", tmp_path / "app"
    for path in context():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, place / path)
    steps = [
        exec_form_words(said) for name in ("build", "build-app") for said in IMAGE[name].all("RUN")
    ]
    assert len(steps) == 3
    for words in steps:
        words = [word.replace("/opt/rota", str(made)) for word in words]
        if words[-1] == "requirements.txt":
            words[-1] = "deploy/example/requirements.txt"
        words[0] = sys.executable if words[0] == "python" else words[0]
        subprocess.run(words, cwd=place, check=True, timeout=600, stdout=subprocess.DEVNULL)
    shutil.copytree(place / "deploy/example", app)
    url = tmp_path / "url"
    url.write_text(f"{rota_dsn}\n")
    entry = str(made / "bin" / exec_form_words(last_instruction("app", "ENTRYPOINT"))[0])
    environment = {"PATH": "/usr/bin:/bin", "ROTA_DATABASE_URL_FILE": str(url)}

    migrated = subprocess.run(
        [entry, "db", "migrate"], cwd=app, env=environment, capture_output=True, text=True
    )
    worker = subprocess.Popen(
        [entry, "worker", "shop:app"],
        cwd=app,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        run = Terminal(rota_dsn, app).run("start", "-a", "shop:app", "confirm", "order=7", "--wait")
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=60)
    finally:
        worker.kill()
        worker.wait()

    assert "is up to date" in migrated.stdout, migrated.stderr
    assert "order 7 is confirmed" in run.out + run.err
    assert worker.returncode == 0, said
    assert "draining" in said
