"""External services: a feed with a rate limit, a vendor that charges money, and a pager.

`python -m examples.market.feed` serves them on a port of 127.0.0.1. The limit applies to all clients
together in any second; further requests are refused with 429. Every request is written to a journal, one
line of JSON each, which is the reference for checking the monitors.

Publications depend only on the clock: a restarted feed continues where it stopped.
"""

from __future__ import annotations

import json
import math
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
"""Number of stories at the start, and the maximum that is listed."""

CENTS = 50
"""Price of a report in cents."""


class Publications:
    """Publications by time, until `end`."""

    def __init__(self) -> None:
        self._began = time.time()
        self._ends = math.inf

    def end(self) -> None:
        """Publish nothing new from now on."""
        self._ends = min(self._ends, time.time())

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


class Service:
    """Rate limit, payments and pages, and the journal of all requests."""

    def __init__(self, publications: Publications, journal: str, limit: int, takes: float) -> None:
        self._publications = publications
        self._limit = limit
        self._takes = takes
        self._lock = threading.Lock()
        self._recent: deque[float] = deque()
        self._keys: dict[str, Any] = {}
        self._requests = 0
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def record(self, **fields: Any) -> None:
        """Write one line to the journal."""
        os.write(self._journal, (json.dumps(fields) + "\n").encode())

    def allow(self) -> bool:
        """Count a request, and return True if the limit allows it in this second."""
        with self._lock:
            now = time.monotonic()
            while self._recent and self._recent[0] <= now - 1:
                self._recent.popleft()
            if len(self._recent) >= self._limit:
                return False
            self._recent.append(now)
            return True

    def get(self, path: str) -> Any:
        match path.strip("/").split("/"):
            case ["filings"]:
                return self._publications.filings()
            case ["halts"]:
                return self._publications.halts()
            case ["articles", source] if source in SOURCES:
                with self._lock:
                    self._requests += 1
                    if source == "blog" and self._requests % 7 == 0:
                        raise ConnectionError("the blog is temporarily unavailable")
                return self._publications.articles(source)
        raise KeyError(path)

    def end(self) -> dict[str, list[Any]]:
        """Publish nothing new from now on, and return all publications."""
        self._publications.end()
        return self.published()

    def published(self) -> dict[str, list[Any]]:
        """Return all publications so far, to check that none was missed."""
        topics = {
            each["topic"] for source in SOURCES for each in self._publications.articles(source)
        }
        return {
            "filings": [each["number"] for each in self._publications.filings()],
            "halts": [each["number"] for each in self._publications.halts()],
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
        """Return True if the pager rings. It does not ring again for a known key."""
        with self._lock:
            rings = not key or key not in self._keys
            self._keys[key] = True
            return rings


def handler(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.received_at = time.time()
            if self.path == "/published":
                self._answer(200, service.published())
            elif not service.allow():
                self._answer(429, {"error": "too many requests"}, limited=True)
            else:
                try:
                    self._answer(200, service.get(self.path), limited=True)
                except ConnectionError as error:
                    self._answer(503, {"error": str(error)}, limited=True)
                except KeyError:
                    self._answer(404, {"error": "not found"}, limited=True)

        def do_POST(self) -> None:
            self.received_at = time.time()
            if self.path == "/end":
                return self._answer(200, service.end())
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key = self.headers.get("Idempotency-Key", "")
            if self.path == "/pages":
                rings = service.page(key)
                self._answer(200, {}, about=body["about"], key=key, rings=rings)
            elif not service.allow():
                self._answer(429, {"error": "too many requests"}, limited=True)
            else:
                report, cents = service.sell(body["topic"], key)
                self._answer(200, report, limited=True, topic=body["topic"], key=key, cents=cents)

        def _answer(self, status: int, document: Any, **fields: Any) -> None:
            # Recorded before the answer is sent, so that lost answers are recorded, too.
            client = self.headers.get("User-Agent")
            service.record(
                at=self.received_at, path=self.path, status=status, client=client, **fields
            )
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
        return None  # the client has died; the journal contains its request


if __name__ == "__main__":
    parser = ArgumentParser(prog="python -m examples.market.feed", description=__doc__)
    parser.add_argument("--port", type=int, default=8790)
    parser.add_argument("--limit", type=int, default=LIMIT, help="maximum requests in any second")
    parser.add_argument(
        "--journal", default=os.devnull, help="file for the journal, one line of JSON per request"
    )
    parser.add_argument("--takes", type=float, default=0.3, help="seconds to write a report")
    options = parser.parse_args()
    service = Service(Publications(), options.journal, options.limit, options.takes)
    server = Server(("127.0.0.1", options.port), handler(service))
    print(
        f"feed at http://127.0.0.1:{server.server_port}, {options.limit} requests a second",
        flush=True,
    )
    with suppress(KeyboardInterrupt):
        server.serve_forever()
