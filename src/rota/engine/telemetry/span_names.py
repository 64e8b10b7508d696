"""Names of spans and of their attributes.

`messaging.*` are OpenTelemetry's own names for sending and processing; `rota.*` cover the rest. No
attribute contains an argument, a result or the text of an error.
"""

from __future__ import annotations

from typing import Final

SCOPE: Final = "rota"
"""Instrumentation scope of the spans."""

# Spans

START: Final = "start {name}"
"""Start of a task or flow. For a start of several, the name is that of the first."""
RUN: Final = "run {task}"
"""Attempt at a job, or a part of one: the span ends when the job sleeps; another begins when it wakes."""
STEP: Final = "step {name}"
MAP: Final = "map {name}"
"""Child calls of a job, including the wait for them."""
TRANSACTION: Final = "transaction"

# Attributes

SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
"""Queue."""
MESSAGE: Final = "messaging.message.id"
"""Job id."""
COUNT: Final = "messaging.batch.message_count"
ERROR: Final = "error.type"
"""Class of an error. Its message is left out because it may contain user data."""

RUN_ID: Final = "rota.run.id"
JOB_ID: Final = "rota.job.id"
TASK: Final = "rota.task"
FLOW: Final = "rota.flow"
ATTEMPT: Final = "rota.attempt"
WORKER: Final = "rota.worker.id"
OUTCOME: Final = "rota.outcome"
"""Outcome of an attempt: succeeded, failed, cancelled, expired, skipped, quarantined, sleeping, restarted,
returned to the queue or lost.
"""
RETRY_IN: Final = "rota.retry.delay"
"""Seconds until the next attempt."""
RESUMED: Final = "rota.resumed"
"""True if the job had run before and its journal was replayed."""
CREATED: Final = "rota.created"
"""True if a start with a key created the run, and False if the run existed."""
STEP_NAME: Final = "rota.step.name"
REPLAYED: Final = "rota.replayed"
"""True if calls of an earlier attempt were found."""
SCHEDULE: Final = "rota.schedule"
