"""The command line: thin edges that ask the same questions as any other program.

    main        the group, its global options, and how a program ends
    endings     exit codes, and one line for a user's mistake
    target      which app and which database a command is about
    load        MODULE:APP → the app
    paint       how things look on a terminal, and as JSON

    worker, crew, lifeline     one worker, or several processes of them
    loops                      the event loop they run in
    start, signal, runs, show, queues, workers, quarantine, db    the commands
    show_job, show_flow, show_steps, called        what `show` shows
    waits                      what a job waits for, and how far it is
    documents                  JSON that somebody typed
    demo                       everything at once, on the embedded PostgreSQL
    pg                         the embedded PostgreSQL by hand

What is dear to import (psycopg, uvloop, rich's tables) is imported where it is used: `rota --help` loads
neither the driver nor another loop.
"""
