"""Agents and scheduled actions behind an API: two instances, one database, restarts without failed
requests.
"""
