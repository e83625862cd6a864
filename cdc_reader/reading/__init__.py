"""The engine: reads a log window by window, from one generation to the next.

It reaches the cluster only through `ports`, so tests can run it without a cluster. May import
`config` and the packages below. Begin with `follower`; `horizon` decides where a window may end.
"""
