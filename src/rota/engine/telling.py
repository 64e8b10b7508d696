"""What every reason is made with: the job it is of, what is known beside it, and who is there."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.model import codec
from rota.model.why import Kind, Reason
from rota.store.why import Crowd, Place, Turn, Wait

WORKER = "`rota worker MODULE:APP`"


class Around(msgspec.Struct, frozen=True):
    """What is known beside the job itself."""

    now: datetime
    dead_after: float
    crowds: dict[tuple[str, str], Crowd]
    turns: dict[int, Turn]
    waits: dict[int, list[Wait]]

    def crowd(self, place: Place) -> Crowd:
        return self.crowds[place.queue, place.task]


class Teller:
    """Makes reasons of one job."""

    def __init__(self, place: Place, around: Around, name: str) -> None:
        self.place = place
        self.around = around
        self.crowd = around.crowd(place)
        self.it = name

    def __call__(
        self,
        *,
        words: str,
        about: tuple[Kind, object] | None = None,
        error: bytes | None = None,
        **more: Any,
    ) -> Reason:
        kind, subject = about or ("job", self.place.job)
        if error is not None:
            more["detail"] = codec.read_error(error).message or None
        more.setdefault("since", self.place.since)
        return Reason(
            words=words,
            kind=kind,
            subject=str(subject),
            job=self.place.job,
            **more,
        )


def nobody(tell: Teller, words: str) -> Reason:
    return tell(
        code="no_worker",
        words=words,
        about=("queue", tell.place.queue),
        do=f"start one with {WORKER}",
        stuck=True,
    )


def count(many: int, one: str, several: str) -> str:
    return f"{many:,} {one if many == 1 else several}"
