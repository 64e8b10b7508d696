"""Parser of settings with values for every queue and for single queues: `30d; images: 1d failed=7d`.

Parts are separated by `;`. A part without a queue name applies to every queue. The words of a part are
separated by spaces; their meaning belongs to the setting.
"""

from __future__ import annotations

import re
from typing import NoReturn

import msgspec

from rota.errors import SettingsError

UNIT_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
"""Seconds of each unit, from the largest to the smallest."""

QUEUE_NAME = re.compile(r"[A-Za-z_][\w.:/-]{0,199}")


class QueueSetting(msgspec.Struct, frozen=True):
    """Format of one setting, and the errors about it."""

    title: str
    """Start of each error message."""
    word: str
    """Name of one word of a part, for example "rule"."""
    scope: str
    """Scope of a part without a queue name."""
    example: str

    def split(self, text: str) -> tuple[str | None, dict[str, str]]:
        """Return the part for every queue, None if there is none, and the parts of single queues."""
        general: str | None = None
        queues: dict[str, str] = {}
        for part in filter(None, map(str.strip, text.split(";"))):
            name, *words = part.split()
            if not name.endswith(":"):
                if general is not None:
                    self.refuse(
                        f"{part!r} is a second part about {self.scope}; make them one, or put a queue's"
                        " name before it"
                    )
                general = part
                continue
            queue = name[:-1]
            if not QUEUE_NAME.fullmatch(queue):
                self.refuse(f"{queue!r} cannot be a queue's name")
            if not words:
                self.refuse(f"queue {queue!r} has no {self.word}")
            if queue in queues:
                self.refuse(f"queue {queue!r} has two parts, make them one")
            queues[queue] = " ".join(words)
        return general, queues

    def refuse(self, reason: str) -> NoReturn:
        raise SettingsError(f"{self.title}: {reason}; write it as in {self.example!r}")
