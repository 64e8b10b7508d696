"""`rota top`: live view of queues, workers, runs and alerts.

command     options, keys, the refresh loop
snapshot    one reading of the database, and rates over several
view        rendering
"""

from rota.cli.top.command import top

__all__ = ["top"]
