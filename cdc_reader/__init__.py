"""Follow ScyllaDB's change data capture log from Python."""
