"""Thin bridges to frameworks of others."""
