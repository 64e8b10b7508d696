"""Events that the engine publishes."""

from __future__ import annotations

import inspect
from dataclasses import fields

from rota.model import events

from .prose import made, said

WORDS = """\
What happens is announced, in the process where it happens, to whoever subscribed:

```python
from rota.model.events import JobFinished

def note(event):
    if isinstance(event, JobFinished):
        print(event.task, event.state, event.seconds)

stop = app.subscribe(note)
```

Logs, metrics and [tests](../guides/testing.md#events) are told in the same way. A subscriber is called in
the event loop and should be quick; what it raises is logged, and disturbs nobody.
All are in `rota.model.events`."""


def page() -> str:
    return made("Events", WORDS, [_event(each) for each in events.Event.__subclasses__()])


def _event(event: type[events.Event]) -> str:
    words = inspect.getdoc(event) or ""
    if not words or words.startswith(f"{event.__name__}("):
        raise SystemExit(f"event {event.__name__} has no docstring; say in it what has happened")
    carried = ", ".join(f"`{each.name}: {each.type}`" for each in fields(event))
    return f"## {event.__name__}\n\n{said(words)}\n\nCarries {carried}."
