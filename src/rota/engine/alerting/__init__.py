"""Alerts: rules are evaluated in one process, notices are delivered by webhook."""
