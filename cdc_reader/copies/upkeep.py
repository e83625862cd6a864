"""When the files of a copy are looked after, by Spark's `mirror` and by the command."""

EVERY = 8
"""How many commits lie between two looks at the files."""
MOST_FILES = 16
"""The number of files up to which a copy, or a bucket of it, is not compacted."""
DAY = 86_400.0
"""How many seconds lie between two removals of files that are no longer used."""
