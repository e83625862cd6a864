"""Test kit: an embedded ScyllaDB, a container of the real one, a clock to move by hand."""
