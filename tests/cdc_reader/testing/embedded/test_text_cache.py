"""Tests the cache that is limited by the total length of texts."""

from cdc_reader.testing.embedded.text_cache import TextCache


def test_the_least_recently_used_goes_first() -> None:
    """The entry that was used least recently is evicted first."""
    cache: TextCache[str] = TextCache(10)
    cache.put("a", "A", 5)
    cache.put("b", "B", 5)
    cache.get("a")
    cache.put("c", "C", 5)
    assert [cache.get(key) for key in "abc"] == ["A", None, "C"]
    assert cache.size == 10


def test_a_text_above_the_limit_replaces_all_others() -> None:
    """An entry above the limit evicts all others, and is kept until the next one is added."""
    cache: TextCache[str] = TextCache(10)
    cache.put("a", "A", 5)
    cache.put("b", "B", 50)
    assert [cache.get(key) for key in "ab"] == [None, "B"]
    cache.put("c", "C", 1)
    assert [cache.get(key) for key in "bc"] == [None, "C"]


def test_replacing_and_forgetting_update_the_size() -> None:
    """The size is the total length of the current entries' texts."""
    cache: TextCache[str] = TextCache(10)
    cache.put("a", "A", 5)
    cache.put("a", "A2", 3)
    assert cache.size == 3
    cache.pop("a")
    cache.pop("a")
    assert (cache.size, cache.get("a")) == (0, None)
    cache.put("b", "B", 4)
    cache.clear()
    assert cache.size == 0
