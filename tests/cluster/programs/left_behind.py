"""Starts two machines, prints their process ids, and waits to be killed.

Arguments: FOLDER ISOLATION.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.cluster.machine import Isolation
from tests.cluster.test_machine import start_sleeping, two_machines

if __name__ == "__main__":
    with two_machines(Path(sys.argv[1]), Isolation[sys.argv[2]]) as (_, machines):
        for machine in machines:
            start_sleeping(machine)
        print(*(pid for machine in machines for pid in machine.pids()), flush=True)
        signal.pause()
