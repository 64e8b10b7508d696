"""JSON responses, and the path that links begin with. An error is `{"error": {"code", "message"}}`."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from rota.errors import DatabaseUnavailable, RotaError
from rota.operations.refusals import refusal_of

log = logging.getLogger("rota")

PATH_SAFE_CHARACTERS = "/:@!$&'()*+,;=~"
"""Characters that browsers do not percent-encode in a path."""


def mount_path(scope: Mapping[str, Any]) -> str:
    """Return the path an application is mounted under, percent-encoded as in a URL."""
    return quote(scope.get("root_path", ""), safe=PATH_SAFE_CHARACTERS)


_ENCODER = msgspec.json.Encoder()


class HttpError(Exception):
    """An error response: HTTP status, error code for programs, message for people."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


class ErrorBody(msgspec.Struct, frozen=True):
    code: str
    message: str


class ErrorDocument(msgspec.Struct, frozen=True):
    error: ErrorBody


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        _ENCODER.encode(content), status, dict(headers or {}), media_type="application/json"
    )


def error_response(error: HttpError) -> Response:
    document = ErrorDocument(ErrorBody(error.code, error.message))
    return json_response(document, error.status, error.headers)


def log_failure(method: str, path: str, error: Exception) -> None:
    """Log where an error occurred, without its message, which may contain data of the request."""
    stack = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    log.error("%s %s: %s\n%s", method, path, type(error).__name__, stack)


def http_error_for(error: RotaError) -> HttpError:
    """Map an error of Rota to its HTTP error. A status of 503 comes with Retry-After."""
    refusal = refusal_of(error)
    headers = {"Retry-After": "1"} if refusal.status == 503 else {}
    # The original message may contain connection details; do not disclose them to clients.
    is_unavailable = isinstance(error, DatabaseUnavailable)
    message = "the database did not answer in time; try again" if is_unavailable else str(error)
    return HttpError(refusal.status, refusal.code, message, headers)
