"""Rota with durable steps: the same app and worker, with a task of several steps.

Each step gets the result of the step before, so the sum shows that results were passed on.
"""

from __future__ import annotations

import os

from run_rota import RotaContender, Startable
from serve import serve

from rota import Context, Rota

STEPS = int(os.environ["BENCH_STEPS"])


class StepsContender(RotaContender):
    def define(self, app: Rota) -> Startable:
        @app.task
        async def steps(ctx: Context, n: int, url: str) -> int:
            for number in range(STEPS):
                n = (await ctx.step(f"s{number}", self._step, n))["n"]
            return n

        return steps

    async def _step(self, n: int) -> dict[str, int]:
        self.tally.saw(n)
        return {"n": n}


if __name__ == "__main__":
    serve(StepsContender())
