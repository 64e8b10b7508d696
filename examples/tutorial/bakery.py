"""The bakery of the tutorial: a flow whose worker is killed while the bread is in the oven.

rota worker bakery:app                                      a worker, in each of two terminals
rota dashboard bakery:app --auth local                       the pictures
rota start -a bakery:app order bread=rye                    an order
"""

# [flow]
import asyncio

from rota import Context, Rota

app = Rota("local")
order = app.flow("order")


@order.task
async def mix(bread: str) -> str:  # no task is called bread: it is input
    await asyncio.sleep(2)
    return f"{bread} dough"


@order.task
async def heat() -> int:  # waits for nothing: runs beside mix
    await asyncio.sleep(3)
    return 230


@order.task
async def bake(ctx: Context, mix: str, heat: int) -> str:  # waits for both
    for minute in range(20):
        ctx.progress(minute, 20, f"{heat} °C")
        await asyncio.sleep(1)
    return f"a loaf of {mix.removesuffix(' dough')} bread"


@order.task
async def pack(bake: str) -> str:
    return f"{bake}, in paper"


# [/flow]
# [pay]
async def charge(card: str, amount: int) -> str:
    await asyncio.sleep(1)  # whoever runs the cards takes a moment
    return f"{card} paid {amount}"


@app.task
async def pay(ctx: Context, card: str, amount: int) -> str:
    receipt = await ctx.step("charge", charge, card, amount)  # done once
    await ctx.sleep(5)  # or days=30: it holds no worker meanwhile
    ctx.log(f"thank you, {card}")
    return receipt


# [/pay]
