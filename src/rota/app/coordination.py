"""Checks of names, leases and options of locks, semaphores, leaders and services. They need no task."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from rota.errors import ArgumentError, DefinitionError
from rota.model import codec
from rota.model.settings import Duration, to_seconds

if TYPE_CHECKING:
    from rota.coord.lock import OnLost
    from rota.model.registry import Registry
    from rota.model.service import ServiceContext

F = TypeVar("F", bound="Callable[[ServiceContext], object] | Callable[[], object]")

MIN_TTL_SECONDS = 0.2
MIN_LEASE_SECONDS = 1.0
MAX_LEASE_SECONDS = 86_400.0
MAX_NAME_CHARS = 200
MAX_PERMITS = 1000
WEEK = timedelta(days=7)


class TryLockOptions(TypedDict, total=False):
    """Options of `try_lock`, which does not wait."""

    ttl: Duration
    max_held: Duration | None
    label: str
    on_lost: OnLost


class LockOptions(TryLockOptions, total=False):
    """Options of a lock or permit."""

    wait: Duration | None


LOCK_DEFAULTS: LockOptions = {
    "ttl": 30.0,
    "wait": None,
    "max_held": None,
    "label": "",
    "on_lost": "raise",
}


def check_leader_name(name: str) -> str:
    from rota.store.services import LEADER_PREFIX

    if check_name(name, "leader").startswith(LEADER_PREFIX):
        raise ArgumentError(
            f"leader {name!r}: names that begin with {LEADER_PREFIX!r} belong to services; take another"
        )
    return name


def service_decorator(
    registry: Registry, name: str, every: Duration | None, forever: bool, lease: Duration
) -> Callable[[F], F]:
    """Return a decorator that registers a function as a service."""
    from rota.model.service import ServiceDefinition

    check_name(name, "service")
    if (every is None) is not forever:
        raise DefinitionError(
            f"service {name!r}: pass how often it runs (every=60), or forever=True for a loop that "
            "does not return"
        )
    if every is not None and not to_seconds(every) > 0:
        raise DefinitionError(
            f"service {name!r}: every must be above 0, not {to_seconds(every):g} s"
        )

    def register(fn: F) -> F:
        registry.add_service(
            ServiceDefinition(
                name, fn, None if every is None else to_seconds(every), check_lease(lease)
            )
        )
        return fn

    return register


def check_lease(lease: Duration) -> float:
    if not MIN_LEASE_SECONDS <= to_seconds(lease) <= MAX_LEASE_SECONDS:
        raise ArgumentError(
            f"lease is {to_seconds(lease):g} s; {MIN_LEASE_SECONDS:g} s at least, to be confirmed in time, "
            f"and {MAX_LEASE_SECONDS:g} s at most"
        )
    return to_seconds(lease)


def check_name(name: str, kind: str) -> str:
    if not codec.is_storable(name, MAX_NAME_CHARS):
        raise ArgumentError(
            f"the name of a {kind} has 1 to {MAX_NAME_CHARS} letters, without NUL or lone surrogates, not "
            f"{name!r:.60}"
        )
    return name


def check_permits(name: str, n: int) -> None:
    if type(n) is not int or not 1 <= n <= MAX_PERMITS:
        raise ArgumentError(
            f"a semaphore has 1 to {MAX_PERMITS} permits, not {n!r}; a lock is app.lock({name!r})"
        )


def check_ttl(ttl: Duration) -> float:
    if not to_seconds(ttl) >= MIN_TTL_SECONDS:
        raise ArgumentError(
            f"ttl is {to_seconds(ttl):g} s: too short to be renewed in time; {MIN_TTL_SECONDS:g} s at least"
        )
    return to_seconds(ttl)


def lock_options(name: str, options: LockOptions) -> dict[str, Any]:
    """Return the checked options, and the defaults of those that are not given."""
    given: LockOptions = {**LOCK_DEFAULTS, **options}
    wait, max_held, on_lost = given["wait"], given["max_held"], given["on_lost"]
    check_name(name, "lock")
    ttl = check_ttl(given["ttl"])
    if on_lost not in ("raise", "cancel"):
        raise ArgumentError(f'on_lost is "raise" or "cancel", not {on_lost!r}')
    return {
        "ttl": ttl,
        "wait": None if wait is None else max(to_seconds(wait), 0.0),
        "max_held": None if max_held is None else to_seconds(max_held),
        "label": given["label"],
        "on_lost": on_lost,
    }
