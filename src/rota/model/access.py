"""Roles and access tokens.

Each of the three roles includes the permissions of the one before. A token is `rota_<id>_<secret>`: the id
identifies the token and is not secret, the secret has 256 random bits. Only a digest of the token is
stored, so the stored rows cannot be used to sign in.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from rota.errors import ArgumentError

ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
"""Characters of a token id, without characters that are easily confused."""

ID_CHARS = 10

_TOKEN_PATTERN = re.compile(rf"rota_([{ID_ALPHABET}]{{{ID_CHARS}}})_([A-Za-z0-9_-]{{43}})")


RoleName = Literal["viewer", "operator", "admin"]


class Role(IntEnum):
    """Role of a caller: read, act on existing objects, or also manage access tokens."""

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
    """Authenticated caller and their role."""

    name: str
    role: Role
    is_cached: bool = False
    """True if the database could not be queried and the token was recognised from memory. The role is then
    VIEWER."""
    is_local: bool = False
    """True if the caller presented the key of a server on this machine instead of a token."""

    def has_role(self, role: Role) -> bool:
        """True if the caller has this role or a higher one."""
        return self.role >= role


@dataclass(frozen=True, slots=True)
class AccessToken:
    """Access token in plain text. It exists only when the token is created or presented."""

    id: str
    text: str

    def __repr__(self) -> str:
        return f"AccessToken({self.id})"

    @property
    def digest(self) -> bytes:
        # A fast hash is enough for 256 random bits: they cannot be guessed.
        return hashlib.sha256(self.text.encode()).digest()

    @classmethod
    def generate(cls) -> AccessToken:
        id = "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_CHARS))
        return cls(id, f"rota_{id}_{secrets.token_urlsafe(32)}")

    @classmethod
    def parse(cls, text: str) -> AccessToken | None:
        """Return the token if `text` has the form of one, else None."""
        found = _TOKEN_PATTERN.fullmatch(text)
        return None if found is None else cls(found[1], text)
