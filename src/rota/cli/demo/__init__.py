"""`rota demo`: one minute of all features, with its own PostgreSQL, two workers and a dashboard.

    command        options, signals, display
    environment    the database, the workers and the port, removed at the end
    tasks          the app that is run
    scenario       the sequence of events, with the kill of a worker
    state          the values and measurements
    view           the display of the values, and the summary of the measurements

However it ends, no process keeps running and no file is left.
"""

from rota.cli.demo.command import demo

__all__ = ["demo"]
