"""Operations: every list and every action that operators have, declared once.

    refusals    errors of operations, and one table: error → HTTP status and exit code
    declare     an operation: input, document, role, audit and refusals
    documents   types of the documents; hides values from viewers
    table       all operations

The HTTP API, the command line, the dashboard and the MCP server are made from the table. No module here
depends on how an operation is called.
"""
