"""The streams of a log over time: stream ids, generations, and windows of write time.

This package may import `cql` and the packages below `cql`. Begin with `generation`. `window`
divides time, and `task` defines what one query reads.
"""
