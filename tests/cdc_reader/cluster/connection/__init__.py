"""Connecting to a cluster, routing, limits and faults."""
