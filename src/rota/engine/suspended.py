"""What ends a plain function's attempt when its job leaves: raised where it waits, in its thread."""

from __future__ import annotations


class SuspendAttempt(BaseException):
    """Not for catching: whatever the code does with it, the attempt is over."""
