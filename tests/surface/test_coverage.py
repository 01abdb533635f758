"""Every public operation has a row, and methods in place compute what their twins do."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

pytest.importorskip("torch")

from surface import recording, rows
from surface.recording import Calls

@pytest.fixture(scope="module")
def calls() -> Calls:
    found = Calls()
    for table, row in rows.tables():
        try: recording.used(row, found)
        except Exception as e: print(table,row.name,type(e),e)
    return found


def test_x(calls):
    seen = {recording.same(*key) for key in calls.names}
    for place in recording.PLACES:
        lacking = [n for n in recording.public(place) if recording.same(place, n) not in seen]
        print(place, len(lacking), ' '.join(n for n in lacking if not(n.endswith('_') and not n.startswith('_'))))
        print('   INPLACE', ' '.join(n for n in lacking if (n.endswith('_') and not n.startswith('_'))))
    print(len(calls.methods))
    assert 0
