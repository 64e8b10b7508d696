"""External services: a feed with a rate limit, a vendor that charges money, and a pager.

`python -m examples.market.feed` serves them on a port of 127.0.0.1. The limit applies to all clients
together in any second; further requests are refused with 429. Every request is written to a journal, one
line of JSON each, which is the reference for checking the monitors.

Publications depend only on the clock: a restarted feed continues where it stopped.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from argparse import ArgumentParser
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .settings import LIMIT, PACE

STORY, HALT = 20.0 * PACE, 15.0 * PACE
"""Seconds between two stories, and between two halts."""

SOURCES = ("wire", "press", "blog")
SYMBOLS = ("ACME", "BOLT", "CRUX", "DUNE", "ECHO", "FLUX", "GLEN", "HALO")
FORMS = ("8-K", "10-Q", "10-K", "S-1")
REASONS = ("volatility", "news pending", "regulatory concern")
BEFORE, LISTED = 15, 300
"""Stories at the start, and the most that are listed."""

CENTS = 50
"""Price of a report in cents."""


class World:
    """Publications by time. With `lasts`, nothing new is published after that many seconds."""

    def __init__(self, lasts: float) -> None:
        self._began = time.time()
        self._ends = self._began + lasts

    def _numbers(self, every: float) -> list[int]:
        first = int(self._began / every) - BEFORE
        last = int(min(time.time(), self._ends) / every)
        return list(range(max(first, last - LISTED), last + 1))

    def filings(self) -> list[dict[str, Any]]:
        found = []
        for number in self._numbers(STORY):
            story = _story(number)
            if story["filed"]:
                found.append({"number": number, **_pick(story, "symbol", "topic", "form")})
        return found

    def halts(self) -> list[dict[str, Any]]:
        found = []
        for number in self._numbers(HALT):
            dice = random.Random(f"halt {number}")
            symbol, reason = dice.choice(SYMBOLS), dice.choice(REASONS)
            found.append({"number": number, "symbol": symbol, "reason": reason})
        return found

    def articles(self, source: str) -> list[dict[str, Any]]:
        stories = [_story(number) for number in self._numbers(STORY)]
        return [
            {"source": source, **_pick(story, "symbol", "topic", "headline")}
            for story in stories
            if source in story["sources"]
        ]


def _story(number: int) -> dict[str, Any]:
    dice = random.Random(f"story {number}")
    symbol = dice.choice(SYMBOLS)
    return {
        "symbol": symbol,
        "topic": f"{symbol}-{number}",
        "filed": dice.random() < 0.6,
        "form": dice.choice(FORMS),
        "headline": f"{symbol} {dice.choice(('rises', 'falls', 'speaks', 'buys', 'sells'))}",
        "sources": dice.sample(SOURCES, dice.randint(1, 3)),
    }


def _pick(story: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: story[name] for name in names}


class Desk:
    """Rate limit, payments and pages, and the journal of all requests."""

    def __init__(self, world: World, journal: str, limit: int, takes: float) -> None:
        self._world = world
        self._limit = limit
        self._takes = takes
        self._lock = threading.Lock()
        self._lately: deque[float] = deque()
        self._keys: dict[str, Any] = {}
        self._asked = 0
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, **what: Any) -> None:
        os.write(self._journal, (json.dumps(what) + "\n").encode())

    def may(self) -> bool:
        """True if the limit allows another request in this second."""
        with self._lock:
            now = time.monotonic()
            while self._lately and self._lately[0] <= now - 1:
                self._lately.popleft()
            if len(self._lately) >= self._limit:
                return False
            self._lately.append(now)
            return True

    def look(self, path: str) -> Any:
        match path.strip("/").split("/"):
            case ["filings"]:
                return self._world.filings()
            case ["halts"]:
                return self._world.halts()
            case ["articles", source] if source in SOURCES:
                with self._lock:
                    self._asked += 1
                    if source == "blog" and self._asked % 7 == 0:
                        raise ConnectionError("the blog is down, for a moment")
                return self._world.articles(source)
        raise KeyError(path)

    def published(self) -> dict[str, list[Any]]:
        """Return all publications so far, to check that none was missed."""
        topics = {each["topic"] for source in SOURCES for each in self._world.articles(source)}
        return {
            "filings": [each["number"] for each in self._world.filings()],
            "halts": [each["number"] for each in self._world.halts()],
            "articles": sorted(topics),
        }

    def sell(self, topic: str, key: str) -> tuple[Any, int]:
        """Return a report and the cents charged: 0 if its key is known."""
        time.sleep(self._takes)
        report = {"score": round(random.Random(f"report {topic}").random(), 2), "cents": CENTS}
        with self._lock:
            if key and key in self._keys:
                return self._keys[key], 0
            self._keys[key] = report
            return report, CENTS

    def page(self, key: str) -> bool:
        """True if the pager rings: not again for a known key."""
        with self._lock:
            rings = not key or key not in self._keys
            self._keys[key] = True
            return rings


def handler(desk: Desk) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.came = time.time()
            if self.path == "/published":
                self._answer(200, desk.published())
            elif not desk.may():
                self._answer(429, {"error": "too many requests"}, limited=True)
            else:
                try:
                    self._answer(200, desk.look(self.path), limited=True)
                except ConnectionError as error:
                    self._answer(503, {"error": str(error)}, limited=True)
                except KeyError:
                    self._answer(404, {"error": "there is no such thing"}, limited=True)

        def do_POST(self) -> None:
            self.came = time.time()
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key = self.headers.get("Idempotency-Key", "")
            if self.path == "/pages":
                rings = desk.page(key)
                self._answer(200, {}, about=said["about"], key=key, rings=rings)
            elif not desk.may():
                self._answer(429, {"error": "too many requests"}, limited=True)
            else:
                report, cents = desk.sell(said["topic"], key)
                self._answer(200, report, limited=True, topic=said["topic"], key=key, cents=cents)

        def _answer(self, status: int, document: Any, **what: Any) -> None:
            # Written to the journal before the answer is sent, so that a lost answer is recorded, too.
            who = self.headers.get("User-Agent")
            desk.note(came=self.came, path=self.path, status=status, who=who, **what)
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return None  # the journal replaces the log

    return Handler


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        return None  # the client has died; the journal has its answer


if __name__ == "__main__":
    parser = ArgumentParser(prog="python -m examples.market.feed", description=__doc__)
    parser.add_argument("--port", type=int, default=8790)
    parser.add_argument("--limit", type=int, default=LIMIT, help="requests in any second")
    parser.add_argument("--journal", default=os.devnull, help="a file, one line of JSON a request")
    parser.add_argument("--lasts", type=float, default=float("inf"), help="nothing new after that")
    parser.add_argument("--takes", type=float, default=0.3, help="seconds to write a report")
    told = parser.parse_args()
    desk = Desk(World(told.lasts), told.journal, told.limit, told.takes)
    server = Server(("127.0.0.1", told.port), handler(desk))
    print(
        f"feed at http://127.0.0.1:{server.server_port}, {told.limit} requests a second", flush=True
    )
    with suppress(KeyboardInterrupt):
        server.serve_forever()
