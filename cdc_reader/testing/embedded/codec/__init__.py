"""Values: CQL literals and JSON to bytes, and bytes to sortable keys."""
