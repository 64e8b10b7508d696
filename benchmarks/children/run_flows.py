"""Rota with runs of many jobs: the same app and worker, with a flow instead of a task.

Its worker knows only the tasks of one shape, as an application's would.
"""

from __future__ import annotations

import os

from run_rota import RotaContender, Startable
from serve import serve
from shapes import SHAPES

from rota import Rota


class FlowContender(RotaContender):
    def define(self, app: Rota) -> Startable:
        if (shape := os.environ["BENCH_SHAPE"]) == "beside":
            SHAPES["wide"](app, self, int(os.environ["BENCH_KNOWN"]))
            return super().define(app)
        return SHAPES[shape](app, self, int(os.environ["BENCH_JOBS"]))


if __name__ == "__main__":
    serve(FlowContender())
