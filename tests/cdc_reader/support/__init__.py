"""Clocks, recordings and running readers that several tests use."""
