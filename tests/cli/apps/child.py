"""Stands in for a worker process: says that it is up, and notes each signal in a file.

    child.py FILE END --parent-pipe DESCRIPTOR

END says after which signal it ends. SIGUSR1 ends it as one that was drained, SIGUSR2 as one that was not.
With exit code 9 it ends before it is up once FILE.broken is there, and right after once FILE.brief is.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType

notes, end = Path(sys.argv[1]), sys.argv[2]
count = 0


def hear(number: int, _: FrameType | None) -> None:
    global count
    count += 1
    with notes.open("a") as file:
        file.write(f"{signal.Signals(number).name}\n")
    if end == str(count):
        sys.exit(0)


def leave(number: int, _: FrameType | None) -> None:
    if number == signal.SIGUSR1:
        lifeline.send(b"-")
    sys.exit(0)


for each in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(each, leave)
for each in (signal.SIGTERM, signal.SIGINT):
    signal.signal(each, hear)
if Path(f"{notes}.broken").exists():
    sys.exit(9)
lifeline = socket.socket(fileno=int(sys.argv[sys.argv.index("--parent-pipe") + 1]))
lifeline.send(b"+")
if Path(f"{notes}.brief").exists():
    with notes.open("a") as file:
        file.write("brief\n")
    sys.exit(9)
while True:
    time.sleep(0.02)  # not signal.pause(), which would miss a signal that came just before
