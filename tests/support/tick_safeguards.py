"""Three safeguards, each of which prevents a tick from being started twice, and how to disable them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rota.store import query

LAYERS: dict[str, dict[str, tuple[str, str]]] = {
    "lock": {"tick/lock_due": ("\n   for update skip locked", "")},
    "key": {"tick/record": ("on conflict (schedule, tick) do nothing\n", "")},
    "compare": {
        "tick/advance": (
            "\n       and schedules.next is not distinct from given.old"
            "\n       and schedules.queued is not distinct from given.wait",
            "",
        )
    },
}

NO_KEY = "alter table rota.ticks drop constraint ticks_pkey"
"""For a test with its own database."""


def disable_safeguards(layers: Sequence[str]) -> Callable[[], None]:
    """Disable these safeguards in this process; return a function that restores them."""
    load = query.load
    changes = {name: change for layer in layers for name, change in LAYERS[layer].items()}

    def changed(statement: str, schema: str) -> str:
        text = load(statement, schema)
        if statement in changes:
            old, new = changes[statement]
            if old not in text:
                raise LookupError(f"{statement} has changed: update the text to remove ({old!r})")
            text = text.replace(old, new)
        return text

    def put_back() -> None:
        query.load = load
        query.encoded.cache_clear()

    query.load = changed  # type: ignore[assignment]
    query.encoded.cache_clear()
    for statement in changes:
        changed(statement, "rota")
    return put_back
