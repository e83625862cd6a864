"""The words that ScyllaDB accepts as names of tables, columns and types only in quotes."""

RESERVED = frozenset(
    "add allow alter and apply asc authorize batch begin by cast columnfamily create default "
    "delete drop entries from full grant if in index infinity insert into is keyspace limit "
    "materialized modify nan norecursive not null of on or order primary rename replace revoke "
    "schema scylla_clustering_bound scylla_counter_shard_list scylla_timeuuid_list_index select "
    "set table to token truncate unlogged unset update use using view where with".split()
)
