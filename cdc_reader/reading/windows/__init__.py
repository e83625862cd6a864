"""Turns windows into tasks, and reads the tasks: the part of the engine that waits.

Begin with `planner`, which makes the tasks. `fetch` reads several at a time.
"""
