"""The streams of a log over time: stream ids, generations, and windows of write time.

May import `cql` and the packages below. Begin with `generation`; `window` divides time, and `task`
is what one query reads.
"""
