"""Rows that arrive behind the position, or in the streams of another generation.

Begin with `rows`. `report` counts late rows by their keys; `strays` finds rows in streams of a
generation that was not in force at their write time.
"""
