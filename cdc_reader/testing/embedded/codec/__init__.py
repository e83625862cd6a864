"""Values: literals to bytes, and bytes to what sorts: the room that knows how cells are made."""
