"""A cache bounded by the size of statements' texts."""

from cdc_reader.testing.embedded.text_cache import TextCache


def test_the_least_recently_used_goes_first() -> None:
    """Recently requested entries stay."""
    cache: TextCache[str] = TextCache(10)
    cache.put("a", "A", 5)
    cache.put("b", "B", 5)
    cache.get("a")
    cache.put("c", "C", 5)
    assert [cache.get(key) for key in "abc"] == ["A", None, "C"]
    assert cache.size == 10


def test_a_text_above_the_limit_replaces_all_others() -> None:
    """Such a text is kept because it is about to be used."""
    cache: TextCache[str] = TextCache(10)
    cache.put("a", "A", 5)
    cache.put("b", "B", 50)
    assert [cache.get(key) for key in "ab"] == [None, "B"]
    cache.put("c", "C", 1)
    assert [cache.get(key) for key in "bc"] == [None, "C"]


def test_replacing_and_forgetting_update_the_size() -> None:
    """The size is that of the current entries."""
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
