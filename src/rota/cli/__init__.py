"""Command line: thin commands over the same queries that other programs use.

    main               the group, its global options, the exit of the program
    exit_codes         exit codes, one-line error messages
    target             the app and the database of a command
    app_loader         MODULE:APP → the app
    output             tables and text on a terminal, JSON
    supervisor         several worker or web processes under one parent
    parent_pipe        the child's connection to that parent
    event_loop         the event loop of long-running commands
    options, format    options and texts shared by several commands
    show, top, demo    commands with several modules

Every other module is one command, a few related ones, or a part of one. Packages that are slow to import
(psycopg, uvloop, rich's tables) are imported where they are used: `rota --help` loads neither the driver
nor uvloop.
"""
