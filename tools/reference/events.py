"""Events that the engine publishes."""

from __future__ import annotations

import inspect
from dataclasses import fields

from rota.model import events

from .prose import made, said

WORDS = """\
An app publishes events to the subscribers in the same process:

```python
from rota.model.events import JobFinished

def print_outcome(event):
    if isinstance(event, JobFinished):
        print(event.task, event.state, event.seconds)

unsubscribe = app.subscribe(print_outcome)
```

Logs, metrics and [tests](../guides/testing.md#events) use the same events. A subscriber is called in the
event loop, so it must return quickly. An exception that it raises is logged and has no other effect. The
classes are in `rota.model.events`."""


def page() -> str:
    return made("Events", WORDS, [_event(each) for each in _events()])


def _events() -> list[type[events.Event]]:
    """Return the event classes in the order of the module.

    `Event.__subclasses__()` may also hold the copies that `dataclass(slots=True)` has replaced.
    """
    return [
        each
        for each in vars(events).values()
        if inspect.isclass(each) and issubclass(each, events.Event) and each is not events.Event
    ]


def _event(event: type[events.Event]) -> str:
    words = inspect.getdoc(event) or ""
    if not words or words.startswith(f"{event.__name__}("):
        raise SystemExit(f"event {event.__name__} has no docstring; describe in it the event")
    carried = ", ".join(f"`{each.name}: {each.type}`" for each in fields(event))
    return f"## {event.__name__}\n\n{said(words)}\n\nFields: {carried}."
