"""Folds changes into what they do to the rows of a copy. Begin with `fold`."""
