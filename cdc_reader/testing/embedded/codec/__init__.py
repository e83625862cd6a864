"""Values: CQL literals and JSON to bytes, and bytes to sortable keys.

May import `grammar`. Begin with `marshal`, which encodes values.
"""
