"""Who may do what: three roles, each of which may do all that the one before may, and the tokens that prove
one.

A token is `rota_<id>_<secret>`: the id says which one it is and is no secret, the rest is 256 random bits.
What is kept is a digest of it: whoever reads the table can use none of them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from enum import IntEnum

from rota.errors import ArgumentError

ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
"""Of an id. Without those that look like another."""

ID_CHARS = 10
"""Letters of an id."""

_TOKEN_PATTERN = re.compile(rf"rota_([{ID_ALPHABET}]{{{ID_CHARS}}})_([A-Za-z0-9_-]{{43}})")


class Role(IntEnum):
    """What somebody may do: look, act on what is there, or also decide who else may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def text(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> Role:
        try:
            return cls[text.upper()]
        except KeyError:
            raise ArgumentError(
                f"there is no role {text!r}, but {', '.join(each.text for each in cls)}"
            ) from None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what he may do."""

    name: str
    role: Role
    is_cached: bool = False
    """Nobody could be asked just now: he may at least look, whatever else he may otherwise."""
    is_local: bool = False
    """True if the caller presented the key of a server on this machine instead of a token."""

    def has_role(self, role: Role) -> bool:
        """Whether this role, or one that may more, is the caller's."""
        return self.role >= role


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token, in the one moment at which it is known whole."""

    id: str
    text: str

    def __repr__(self) -> str:
        return f"Token({self.id})"

    @property
    def digest(self) -> bytes:
        # Of 256 random bits: nothing slower would make it harder to guess.
        return hashlib.sha256(self.text.encode()).digest()

    @classmethod
    def generate(cls) -> AccessToken:
        id = "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_CHARS))
        return cls(id, f"rota_{id}_{secrets.token_urlsafe(32)}")

    @classmethod
    def parse(cls, text: str) -> AccessToken | None:
        """What somebody sent, if it has the form of one."""
        found = _TOKEN_PATTERN.fullmatch(text)
        return None if found is None else cls(found[1], text)
