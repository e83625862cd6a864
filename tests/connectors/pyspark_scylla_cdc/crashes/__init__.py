"""Queries that are killed at random moments or overtaken by writes."""
