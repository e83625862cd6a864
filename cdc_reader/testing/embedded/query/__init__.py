"""Plans and executes statements on schema and storage.

May import `grammar`, `ddl`, `cdc`, `system` and the packages below them. Begin with `engine`.
"""
