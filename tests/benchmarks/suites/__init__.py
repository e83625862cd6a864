"""Benchmarks: each module has a function `figures`, which measures and yields results."""
