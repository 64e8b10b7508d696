"""The colours of the states, by day and by night. A word always stands beside the colour."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ink:
    fill: str
    line: str
    word: str


@dataclass(frozen=True, slots=True)
class Palette:
    ground: str
    name: str
    edge: str
    states: dict[str, Ink]
    """By state; under "" what has none."""


DAY = Palette(
    ground="#ffffff",
    name="#1e293b",
    edge="#94a3b8",
    states={
        "": Ink("#f8fafc", "#94a3b8", "#64748b"),
        "waiting": Ink("#f8fafc", "#cbd5e1", "#64748b"),
        "ready": Ink("#eef2ff", "#818cf8", "#4f46e5"),
        "asleep": Ink("#eff6ff", "#60a5fa", "#1d4ed8"),
        "running": Ink("#ecfeff", "#06b6d4", "#0e7490"),
        "succeeded": Ink("#f0fdf4", "#4ade80", "#15803d"),
        "failed": Ink("#fef2f2", "#ef4444", "#b91c1c"),
        "quarantined": Ink("#fdf4ff", "#d946ef", "#a21caf"),
        "cancelled": Ink("#fefce8", "#eab308", "#854d0e"),
        "expired": Ink("#fff7ed", "#f97316", "#9a3412"),
        "skipped": Ink("#ffffff", "#cbd5e1", "#64748b"),
    },
)

NIGHT = Palette(
    ground="#0f172a",
    name="#e2e8f0",
    edge="#64748b",
    states={
        "": Ink("#1e293b", "#64748b", "#94a3b8"),
        "waiting": Ink("#1e293b", "#475569", "#94a3b8"),
        "ready": Ink("#1e1f4b", "#6366f1", "#a5b4fc"),
        "asleep": Ink("#14264d", "#3b82f6", "#93c5fd"),
        "running": Ink("#0b3440", "#06b6d4", "#67e8f9"),
        "succeeded": Ink("#0d3322", "#22c55e", "#86efac"),
        "failed": Ink("#421a1f", "#ef4444", "#fca5a5"),
        "quarantined": Ink("#3a1442", "#c026d3", "#f0abfc"),
        "cancelled": Ink("#392d0c", "#ca8a04", "#fde047"),
        "expired": Ink("#40220f", "#ea580c", "#fdba74"),
        "skipped": Ink("#0f172a", "#475569", "#94a3b8"),
    },
)
