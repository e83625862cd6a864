"""CQL text to syntax trees; nothing here knows what exists in the server."""
