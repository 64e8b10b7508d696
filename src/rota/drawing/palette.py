"""Colours of the states in light and dark mode. Drawings always show the state as text, too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateColors:
    fill: str
    stroke: str
    text: str


@dataclass(frozen=True, slots=True)
class Palette:
    background: str
    text: str
    edge: str
    states: dict[str, StateColors]
    """By state; "" is the entry for jobs without a state."""


LIGHT = Palette(
    background="#ffffff",
    text="#1e293b",
    edge="#94a3b8",
    states={
        "": StateColors("#f8fafc", "#94a3b8", "#64748b"),
        "waiting": StateColors("#f8fafc", "#cbd5e1", "#64748b"),
        "queued": StateColors("#eef2ff", "#818cf8", "#4f46e5"),
        "sleeping": StateColors("#eff6ff", "#60a5fa", "#1d4ed8"),
        "running": StateColors("#ecfeff", "#06b6d4", "#0e7490"),
        "succeeded": StateColors("#f0fdf4", "#4ade80", "#15803d"),
        "failed": StateColors("#fef2f2", "#ef4444", "#b91c1c"),
        "quarantined": StateColors("#fdf4ff", "#d946ef", "#a21caf"),
        "cancelled": StateColors("#fefce8", "#eab308", "#854d0e"),
        "expired": StateColors("#fff7ed", "#f97316", "#9a3412"),
        "skipped": StateColors("#ffffff", "#cbd5e1", "#64748b"),
    },
)

DARK = Palette(
    background="#0f172a",
    text="#e2e8f0",
    edge="#64748b",
    states={
        "": StateColors("#1e293b", "#64748b", "#94a3b8"),
        "waiting": StateColors("#1e293b", "#475569", "#94a3b8"),
        "queued": StateColors("#1e1f4b", "#6366f1", "#a5b4fc"),
        "sleeping": StateColors("#14264d", "#3b82f6", "#93c5fd"),
        "running": StateColors("#0b3440", "#06b6d4", "#67e8f9"),
        "succeeded": StateColors("#0d3322", "#22c55e", "#86efac"),
        "failed": StateColors("#421a1f", "#ef4444", "#fca5a5"),
        "quarantined": StateColors("#3a1442", "#c026d3", "#f0abfc"),
        "cancelled": StateColors("#392d0c", "#ca8a04", "#fde047"),
        "expired": StateColors("#40220f", "#ea580c", "#fdba74"),
        "skipped": StateColors("#0f172a", "#475569", "#94a3b8"),
    },
)
