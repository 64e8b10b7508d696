"""Bakery of the tutorial: a flow whose worker is killed during the baking.

rota worker bakery:app                                      a worker, in each of two terminals
rota dashboard bakery:app --auth local                      the dashboard
rota start -a bakery:app order bread=rye                    an order
"""

# [flow]
import asyncio

from rota import Context, Rota

app = Rota("local")
order = app.flow("order")


@order.task
async def mix(bread: str) -> str:  # no task is called bread, so it is an input
    await asyncio.sleep(2)
    return f"{bread} dough"


@order.task
async def heat() -> int:  # depends on no task: runs at the same time as mix
    await asyncio.sleep(3)
    return 230


@order.task
async def bake(ctx: Context, mix: str, heat: int) -> str:  # depends on both
    for second in range(20):
        ctx.progress(second, 20, f"{heat} °C")
        await asyncio.sleep(1)
    return f"a loaf of {mix.removesuffix(' dough')} bread"


@order.task
async def pack(bake: str) -> str:
    return f"{bake}, in paper"


# [/flow]
# [pay]
async def charge(card: str, amount: int) -> str:
    await asyncio.sleep(1)  # the card company takes a moment
    return f"{card} paid {amount}"


@app.task
async def pay(ctx: Context, card: str, amount: int) -> str:
    receipt = await ctx.step("charge", charge, card, amount)  # its result is stored
    await ctx.sleep(5)  # or days=30; occupies no worker
    ctx.log(f"thank you, {card}")
    return receipt


# [/pay]
