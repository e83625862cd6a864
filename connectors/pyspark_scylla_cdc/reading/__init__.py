"""What an executor does: keeps a session per process, and reads partitions.

Begin with `partitions`.
"""
