"""Tests which statements a fault matches, and how often it affects them."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.errors import ConfigurationError
from cdc_reader.testing.embedded.faults import Fault, FaultKind, FaultPlan, Statement

SELECT = Statement('SELECT * FROM "ks"."t_scylla_cdc_log" WHERE pk = ?', 1)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("", True),
        ("ks.t_scylla_cdc_log", True),
        ("KS.T_Scylla_cdc_log", True),
        ("select * from ks.t_scylla_cdc_log", True),
        ("ks.t", False),
        ("s.t_scylla_cdc_log", False),
        ("insert", False),
    ],
)
def test_a_fault_affects_statements_that_match(match: str, matches: bool) -> None:
    """Faults match whole words, ignoring case and quotes."""
    assert SELECT.matches(Fault("overloaded", match)) is matches


def test_drivers_own_queries_are_spared_unless_named() -> None:
    """Drivers' queries of system tables match only faults that name the keyspace.

    Clients can therefore connect while other faults are active.
    """
    own = Statement("SELECT * FROM system.local WHERE key='local'", 1)
    assert not own.matches(Fault("server-error"))
    assert own.matches(Fault("server-error", "system.local"))
    assert Statement("SELECT * FROM system_distributed.x", 1).matches(Fault("server-error"))


def test_some_faults_affect_only_some_kinds_of_statement() -> None:
    """READ_TIMEOUT affects only reads, and UNPREPARED affects only prepared statements."""
    write = Statement("INSERT INTO ks.t (pk) VALUES (?)", 1, is_prepared=True)
    assert not write.matches(Fault("read-timeout"))
    assert SELECT.matches(Fault("read-timeout"))
    assert write.matches(Fault("unprepared"))
    assert not SELECT.matches(Fault("unprepared"))


@given(st.integers(0, 20), st.integers(1, 20), st.integers(0, 60))
def test_a_fault_skips_then_strikes_then_ends(after: int, times: int, asked: int) -> None:
    """The first `after` statements succeed, the next `times` are affected, and the rest succeed."""
    fault, plan = Fault("overloaded", times=times, after=after), FaultPlan()
    plan.add(fault)
    struck = [plan.strike(SELECT) is not None for _ in range(asked)]
    assert struck == ([False] * after + [True] * times + [False] * asked)[:asked]
    assert plan.struck(fault) == sum(struck)


def test_the_first_fault_that_fits_strikes() -> None:
    """A statement is affected by at most one fault, the first that matches."""
    first, second, plan = Fault("overloaded"), Fault("unavailable"), FaultPlan()
    plan.add(first, second)
    kinds = [strike.kind for _ in range(3) if (strike := plan.strike(SELECT))]
    assert kinds == [FaultKind.OVERLOADED, FaultKind.UNAVAILABLE]


def test_faults_are_in_force_until_taken_away() -> None:
    """Faults are active until their context ends or they are cleared."""
    fault, plan = Fault("overloaded", times=None), FaultPlan()
    with plan.during(fault):
        assert plan
        assert all(plan.strike(SELECT) for _ in range(100))
    assert not plan
    plan.add(fault)
    plan.clear()
    assert plan.strike(SELECT) is None


def test_threads_share_a_plan() -> None:
    """The count of affected statements is exact with several threads."""
    fault, plan = Fault("overloaded", times=1_000), FaultPlan()
    plan.add(fault)

    def ask() -> None:
        for _ in range(500):
            plan.strike(SELECT)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert plan.struck(fault) == 1_000


def test_a_fault_is_read_from_text() -> None:
    """A fault is parsed from the format of the command line."""
    assert Fault.parse("overloaded") == Fault("overloaded")
    text = "delay,match=ks.t,times=inf,after=3,seconds=0.5"
    assert Fault.parse(text) == Fault("delay", "ks.t", times=None, after=3, seconds=0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("explode", "fault is 'explode': expected one of drop, close, delay, overloaded"),
        ("drop,times=often", r"expected KIND\[,match=TEXT\]"),
        ("drop,where=here", r"expected KIND\[,match=TEXT\]"),
        ("drop,times=0", "times is 0: expected at least 1"),
        ("drop,after=-1", "after is -1: expected at least 0"),
        ("delay", "seconds is 0.0: a delay takes more than 0"),
        ("drop,seconds=1", "seconds is 1.0: .* another fault none"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(text: str, message: str) -> None:
    """An invalid fault raises a one-line error."""
    with pytest.raises(ConfigurationError, match=message):
        Fault.parse(text)
