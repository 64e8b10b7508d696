"""Operation that explains why a run or job does not run."""

from __future__ import annotations

from rota.engine.diagnosis.explain import explain
from rota.errors import RunNotFound
from rota.model.access import Role
from rota.model.explanation import Explanation
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import PathId

group = OperationGroup("runs")


@group.operation("GET /runs/{run}/explain", Role.VIEWER, refuses=(RunNotFound,))
async def explain_run(context: OperationContext, run: PathId) -> Explanation:
    """Explain why a run, or one of its jobs, does not run, and give the remedy."""
    found = await explain(context.read, run, context.app.settings)
    if found is None:
        raise RunNotFound(f"there is no run {run}")
    return found
