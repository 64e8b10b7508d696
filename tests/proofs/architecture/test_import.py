"""Duration of `import rota`."""

from __future__ import annotations

from support.import_report import import_report


def test_import_rota_takes_under_three_times_its_dependencies() -> None:
    """The limit is a generous ratio of medians, measured in turns, because this machine may be busy."""
    ours, ground = [], []
    for _ in range(5):
        ours.append(import_report("rota")["took"])
        ground.append(import_report("asyncio, msgspec")["took"])

    assert sorted(ours)[2] < 3 * sorted(ground)[2]
