"""Runs `scylla-cdc mirror`, and kills this process at a chosen call.

    python -m tests.cdc_reader.cli.killed_mirror HOSTS TABLE FOLDER FUNCTION MOMENT NUMBER

FUNCTION is the name of a step: `save` of the position, or `append` or `merge` of the Delta table.
The process is killed before or after (MOMENT) call NUMBER of the step.
"""

from __future__ import annotations

import sys

from cdc_reader.cli.command import main as scylla_cdc
from cdc_reader.copies import keeping
from cdc_reader.copies.delta import DeltaFiles
from cdc_reader.copies.position_file import PositionFile
from tests.examples.killed import killing


def main(hosts: str, table: str, folder: str, function: str, moment: str, number: str) -> None:
    """Bring the copy up to the present with many commits, unless the process is killed before."""
    keeping.BYTES = 0
    place = PositionFile if function == "save" else DeltaFiles
    setattr(place, function, killing(getattr(place, function), moment, int(number)))
    end = ["--until", "now", "--confidence-window", "0s"]
    scylla_cdc(["mirror", hosts, table, folder, *end])


if __name__ == "__main__":
    main(*sys.argv[1:])
