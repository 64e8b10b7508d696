"""Schedules: which ticks are due, and starting the runs of each tick once."""
