"""Plans and executes statements on schema and storage.

This package may import `grammar`, `ddl`, `cdc`, `system` and the packages below them. Begin with
`engine`.
"""
