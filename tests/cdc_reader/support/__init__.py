"""Clocks, recordings and readers that several tests share."""
