"""Isolated tasks that report progress and use durable calls."""

from __future__ import annotations

from rota import Context, Rota

app = Rota("postgresql://nowhere")


@app.task(isolation="process")
def report_progress(ctx: Context) -> None:
    ctx.progress(1, 2, "half")
    ctx.log("from a process")


@app.task(isolation="process")
async def durable(ctx: Context, how: str) -> None:
    match how:
        case "step":
            await ctx.step("one", lambda: None)
        case "sleep":
            await ctx.sleep(1)
        case "wait":
            await ctx.wait_signal("word")
        case "uuid":
            ctx.uuid()
        case "version":
            ctx.version("fees")
