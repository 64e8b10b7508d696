"""Six processes contend for one lock while some of them are stopped for longer than its TTL.

The tokens of their writes never fall, no writes of two processes overlap, and each loss is reported. `make
proofs` runs the long form: five minutes and every mutant.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.lock_contest import contest
from support.scale import scale

pytestmark = pytest.mark.slow

SECONDS = scale(6.0, 300.0)
TTL = scale(0.6, 1.0)


@pytest.mark.timeout(120 + SECONDS)
async def test_lock_six_contenders_write_in_turn_and_report_each_loss(
    direct_dsn: str, tmp_path: Path
) -> None:
    found = await contest(direct_dsn, tmp_path, seconds=SECONDS, ttl=TTL, seed="six")
    counts = found.counts
    print(dict(counts))

    assert found.said() == []
    # The faults did happen.
    least = SECONDS / 6
    assert counts["acquisitions"] >= 5 * least
    assert min(counts["effects"], counts["losses told"], counts["taken over"]) >= least
    assert counts["refused"] >= least
    assert counts["taken away"] >= least // 2
