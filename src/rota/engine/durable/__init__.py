"""Durable functions inside an attempt: steps, sleeps, signals, branches and their journal."""
