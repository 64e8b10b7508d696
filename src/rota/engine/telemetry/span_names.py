"""What spans and their attributes are called, all of it.

`messaging.*` are OpenTelemetry's own names for what is sent and worked off; `rota.*` says what those have
no word for. Nothing here carries an argument, a result or the text of an error.
"""

from __future__ import annotations

from typing import Final

SCOPE: Final = "rota"
"""The name under which spans are made."""

# Spans

START: Final = "start {name}"
"""A task or a flow is started; or several, and the name is that of the first."""
RUN: Final = "run {task}"
"""One attempt at a job, or a part of one: it ends when the job sleeps, and another begins when it wakes."""
STEP: Final = "step {name}"
MAP: Final = "map {name}"
"""A job calls others and waits for them."""
TRANSACTION: Final = "transaction"

# Attributes

SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
"""The queue."""
MESSAGE: Final = "messaging.message.id"
"""The job."""
COUNT: Final = "messaging.batch.message_count"
ERROR: Final = "error.type"
"""The class of an error; what it says may be somebody's data."""

RUN_ID: Final = "rota.run.id"
JOB_ID: Final = "rota.job.id"
TASK: Final = "rota.task"
FLOW: Final = "rota.flow"
ATTEMPT: Final = "rota.attempt"
WORKER: Final = "rota.worker.id"
OUTCOME: Final = "rota.outcome"
"""What an attempt came to: succeeded, failed, cancelled, skipped, asleep, restarted, given back, lost."""
RETRY_IN: Final = "rota.retry.delay"
"""Seconds until the next attempt."""
RESUMED: Final = "rota.resumed"
"""Whether the job had begun before, and was given what it had come to."""
CREATED: Final = "rota.created"
"""Whether a start with a key made a run, or found one."""
STEP_NAME: Final = "rota.step.name"
REPLAYED: Final = "rota.replayed"
"""Whether calls were found that an earlier attempt has made."""
SCHEDULE: Final = "rota.schedule"
