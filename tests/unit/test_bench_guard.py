"""Benchmark guard: counts of protocol messages, and reports of increased costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.guard.verdict import MEASURES, compare
from benchmarks.guard.wire import Wire, _Connection
from benchmarks.guard.workloads import Cost

COST = Cost(10.0, 10.0, 300.0, 4.0, 1.0, 1.0)
MEASURE = {each.field: each for each in MEASURES}


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + (len(body) + 4).to_bytes(4) + body


STARTUP = (8).to_bytes(4) + (3 << 16).to_bytes(4)
READY = message(b"Z", b"I")


def connection() -> tuple[Wire, _Connection]:
    wire = Wire("", "")
    opened = _Connection(wire)
    opened.sent(STARTUP)
    opened.received(message(b"R", b"\0\0\0\0") + READY)
    wire.statements = wire.round_trips = 0
    return wire, opened


def test_wire_counts_a_pipeline_as_one_round_trip() -> None:
    wire, opened = connection()
    opened.sent((message(b"B") + message(b"E") + message(b"S")) * 3)
    opened.received(message(b"C") + READY + message(b"C") + READY)
    assert (wire.statements, wire.round_trips) == (3, 0)
    opened.received(message(b"C") + READY)
    assert (wire.statements, wire.round_trips) == (3, 1)


def test_wire_counts_messages_that_arrive_in_pieces_once() -> None:
    wire, opened = connection()
    for byte in message(b"Q", b"select 1\0"):
        opened.sent(bytes([byte]))
    for byte in message(b"A", b"a notification") + READY:
        opened.received(bytes([byte]))
    assert (wire.statements, wire.round_trips) == (1, 1)


@pytest.mark.parametrize(
    ("workload", "field", "factor", "rose"),
    [
        ("drain", "client_us", 1.04, False),
        ("drain", "client_us", 1.06, True),
        ("drain", "server_us", 1.06, True),
        ("bulk", "row_versions", 1.0, False),
        ("bulk", "row_versions", 1.01, True),
        ("latency", "statements", 1.01, False),
        ("latency", "statements", 1.13, True),
        ("single", "round_trips", 1.5, True),
        ("drain", "wal_bytes", 0.9, False),
    ],
)
def test_compare_cost_above_tolerance_is_reported_as_risen(
    workload: str, field: str, factor: float, rose: bool
) -> None:
    head = replace(COST, **{field: getattr(COST, field) * factor})
    assert compare(workload, [COST] * 3, [head] * 3, MEASURE[field]).rose is rose


def test_compare_of_cpu_ignores_a_single_bad_pair() -> None:
    slow = replace(COST, client_us=99.0)
    assert not compare("drain", [COST] * 3, [COST, slow, COST], MEASURE["client_us"]).rose
