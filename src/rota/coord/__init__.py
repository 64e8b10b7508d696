"""Coordination between instances: locks, semaphores, leaders, services, rate limits and once calls."""
