"""Counters, statistics per minute, events and traces."""
