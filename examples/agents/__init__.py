"""Agents and scheduled actions behind an API: two instances, one database, restarts that nobody notices."""
