"""Generations, in each of the forms in which clusters publish them."""
