"""A migration of a later version of Rota, as a row in the table of applied ones."""

NEWER_MIGRATION = """
    insert into rota.migrations (version, name, breaking, checksum) values (%s, 'newer', %s, 'of later')
"""
