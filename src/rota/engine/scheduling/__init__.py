"""Schedules: finding the ticks that are due, and starting the runs of each tick once."""
