"""The options of the data source: their table, their parsers, and errors that name them.

May import `offsets`. Begin with `table`.
"""
