"""The process that runs samples: requests by line on stdin, replies on stdout."""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.soak.worker import limit

TESTS = Path(__file__).parents[1]


def suite(name: str) -> Any:
    """The module of a suite: `ops` or `modules`."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))  # tests/surface is imported as `surface`
    return importlib.import_module(f"tests.conformance.{name}")


def main() -> None:
    limit(int(sys.argv[2]))
    faulthandler.enable()
    with os.fdopen(os.dup(1), "w", encoding="ascii") as out:
        os.dup2(2, 1)  # whatever a sample prints stays out of the replies

        def reply(**what: Any) -> None:
            print(json.dumps(what), file=out, flush=True)

        module = suite(sys.argv[1])
        reply(names=module.names())
        for line in sys.stdin:
            for found in module.examined(**json.loads(line)):
                reply(outcomes=[outcome.plain() for outcome in found])
            reply(over=True)


if __name__ == "__main__":
    main()
