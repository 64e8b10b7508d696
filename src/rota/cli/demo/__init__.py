"""`rota demo`: a minute of everything, on a PostgreSQL, two workers and a dashboard of its own.

    command    options, signals, the view
    stage      what has to be ended again: the database, the workers, the port
    tasks      what is run: an app like anybody's
    play       who starts what, and who looks on; flows and accident are two of the parts
    scene      what there is to see at a moment; view draws it
    tally      what was counted and measured; summary says it

Whatever ends it, nothing keeps running and nothing is left on the disk.
"""

from rota.cli.demo.command import demo

__all__ = ["demo"]
