"""Values: literals to bytes, and bytes to what sorts: the room that knows how cells are made."""

The one room that knows how cells are serialised.
"""
