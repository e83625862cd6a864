"""The options of the data source: the options table, parsers, and errors that name options.

May import `offsets`. Begin with `table`.
"""
