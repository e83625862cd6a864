"""The options of the data source: the options table, parsers, and errors that name options.

This package may import `offsets`. Begin with `table`.
"""
