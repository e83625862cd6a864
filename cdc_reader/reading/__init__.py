"""The engine: reads a log window by window, from one generation to the next.

It sees the cluster only through `ports`, so tests run it without one. May import `config` and
the packages below. Begin with `follower`; `horizon` decides where a window may end.
"""
