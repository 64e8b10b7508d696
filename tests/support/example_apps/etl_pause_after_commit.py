"""The ETL flow with a pause after a commit: a worker that has committed for the task named by WIDEN creates
a file and waits five seconds. With MUTANT set, the job's completion is not part of that commit.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rota import Context

module: Any = importlib.import_module("examples.etl.app")
app = module.app

committing = Context.transaction


@asynccontextmanager
async def transaction(self: Context) -> AsyncIterator[Any]:
    async with committing(self) as connection:
        yield connection
    if self.task == os.environ["WIDEN"]:
        await asyncio.to_thread(Path(os.environ["NOTES"]).touch)
        await asyncio.sleep(5)


Context.transaction = transaction  # type: ignore[method-assign]
if os.environ.get("MUTANT"):
    Context.complete = lambda self, result=None: None  # type: ignore[method-assign]
