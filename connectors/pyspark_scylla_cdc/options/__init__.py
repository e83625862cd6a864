"""The options of the data source: their table, how each is parsed, and errors that name them.

May import `offsets`. Begin with `table`.
"""
