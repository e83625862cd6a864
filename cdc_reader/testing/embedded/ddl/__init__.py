"""Statements that change the schema: what they do, and every refusal in the server's words."""
