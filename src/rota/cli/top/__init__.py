"""`rota top`: queues, workers, runs and alerts as they are, again and again.

command    options, keys, the loop
glance     one look at the database, and what follows from several
view       how it is drawn
"""

from rota.cli.top.command import top

__all__ = ["top"]
