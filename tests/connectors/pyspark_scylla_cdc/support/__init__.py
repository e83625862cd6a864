"""Readers and queries that several tests use."""
