"""The options of the data source: the options table, parsers, and errors that name options.

It may import `offsets`. Begin with `table`.
"""
