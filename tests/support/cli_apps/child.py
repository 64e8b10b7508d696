"""Stand-in for a worker process: reports that it is up and appends each signal to a file.

    child.py FILE END --parent-pipe DESCRIPTOR

END is the number of the signal that ends the process. SIGUSR1 ends it as drained, SIGUSR2 as not drained.
It exits with code 9 before it is up if FILE.broken exists, and right after if FILE.brief exists.
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


def on_stop_signal(number: int, _: FrameType | None) -> None:
    global count
    count += 1
    with notes.open("a") as file:
        file.write(f"{signal.Signals(number).name}\n")
    if end == str(count):
        sys.exit(0)


def on_end_signal(number: int, _: FrameType | None) -> None:
    if number == signal.SIGUSR1:
        lifeline.send(b"-")
    sys.exit(0)


for each in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(each, on_end_signal)
for each in (signal.SIGTERM, signal.SIGINT):
    signal.signal(each, on_stop_signal)
if Path(f"{notes}.broken").exists():
    sys.exit(9)
lifeline = socket.socket(fileno=int(sys.argv[sys.argv.index("--parent-pipe") + 1]))
lifeline.send(b"+")
if Path(f"{notes}.brief").exists():
    with notes.open("a") as file:
        file.write("brief\n")
    sys.exit(9)
while True:
    time.sleep(0.02)  # signal.pause() would miss a signal that arrived just before
