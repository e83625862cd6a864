"""Values: literals to bytes, bytes to what sorts. The one room that knows how cells are serialised."""
