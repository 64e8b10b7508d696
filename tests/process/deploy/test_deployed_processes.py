"""Processes of the manifests, started with their own arguments and variables, on other ports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.container_image import last_instruction
from support.dockerfile import exec_form_words
from support.manifests import base, container, environment, find_document, read
from support.places import DEPLOY
from support.server_process import free_port
from support.terminal import Terminal, eventually

EXAMPLE = DEPLOY / "example"
SOON = {"ROTA_DRAIN_DELAY": "2"}  # there is no load balancer here


@dataclass(frozen=True)
class Pod:
    process: subprocess.Popen[bytes]
    ports: Mapping[str, int]
    said: Path
    environment: Mapping[str, str]

    def ask(self, path: str, port: str = "health", token: str | None = None) -> tuple[int, str]:
        """Return the status, 0 without an answer, and the text."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports[port]}{path}")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.said.read_text()
        return self.ask("/health/ready")[0] == 200


@contextmanager
def deployed(role: str, dsn: str, directory: Path) -> Iterator[Pod]:
    template = find_document(base(), "Deployment", f"rota-{role}")["spec"]["template"]
    ports = {each["name"]: free_port() for each in container(template)["ports"]}
    moved = {
        str(each["containerPort"]): str(ports[each["name"]])
        for each in container(template)["ports"]
    }
    url = directory / "url"
    url.write_text(f"{dsn}\n")
    variables = environment(base(), template) | SOON | {"ROTA_DATABASE_URL_FILE": str(url)}
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    entry = exec_form_words(last_instruction("app", "ENTRYPOINT"))
    words = [moved.get(word, word) for word in container(template)["args"]]
    said = directory / "said"
    with said.open("wb") as out:
        process = subprocess.Popen(
            [*entry, *words], env=path | variables, cwd=EXAMPLE, stdout=out, stderr=out
        )
    try:
        yield Pod(process, ports, said, path | variables)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("role", ["worker", "web"])
def test_deployed_process_answers_probes_and_drains_on_sigterm(
    role: str, rota_dsn: str, tmp_path: Path
) -> None:
    asked = container(find_document(base(), "Deployment", f"rota-{role}")["spec"]["template"])
    with deployed(role, rota_dsn, tmp_path) as pod:
        eventually(pod.is_ready, within=60)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert pod.ask(asked[probe]["httpGet"]["path"])[0] == 200, probe
        assert subprocess.run(_health_check(pod), env=pod.environment).returncode == 0
        if role == "worker":
            _check_metrics(pod, rota_dsn)

        pod.process.send_signal(signal.SIGTERM)
        if role == "web":
            # Not ready, alive, and still serving: until the load balancer has noticed.
            eventually(lambda: pod.ask("/health/ready")[0] == 503)
            assert pod.ask("/health/live")[0] == 200
            assert pod.ask("/openapi.json", "http")[0] == 200

        assert pod.process.wait(60) == 0, pod.said.read_text()
    assert subprocess.run(
        _health_check(pod), env=pod.environment, stderr=subprocess.DEVNULL
    ).returncode


def _check_metrics(pod: Pod, dsn: str) -> None:
    """Scrape the metrics as the manifest configures it, with a token created as it describes."""
    component = DEPLOY / "kubernetes/components/pod-monitor"
    [endpoint] = read(component / "pod-monitor.yaml")[0]["spec"]["podMetricsEndpoints"]
    [made] = re.findall(r"`rota (.+)`", (component / "kustomization.yaml").read_text())
    token = Terminal(dsn).run(*made.split()).out.strip()

    assert pod.ask(endpoint["path"])[0] == 401
    status, text = pod.ask(endpoint["path"], endpoint["port"], token)
    assert status == 200, text
    assert "rota_build_info{" in text


def _health_check(pod: Pod) -> list[str]:
    """Return the image's health check, with this pod's port."""
    words = exec_form_words(last_instruction("app", "HEALTHCHECK").split("CMD ", 1)[1])
    return [word.replace("8081", str(pod.ports["health"])) for word in words]
