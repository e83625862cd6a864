"""Statements that change the schema: what they do, and every refusal in the server's words.

A statement that leaves all as it is, by IF [NOT] EXISTS, gives None.
"""
