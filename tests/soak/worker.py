"""The process that runs cases of one generator: requests by line on stdin, replies on stdout."""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType

TESTS = Path(__file__).parents[1]


def load(name: str) -> ModuleType:
    """The generator called `name`."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))  # tests/support is imported as `support`
    return importlib.import_module(f"tests.soak.generators.{name}")


def draw(module: ModuleType, key: list[int]) -> Any:
    """The case of a key; passed through JSON, so that it is what its text says."""
    return json.loads(json.dumps(module.generate(np.random.default_rng(key))))


def outcome(module: ModuleType, case: Any) -> str | None:
    """What is wrong with a case, or None."""
    try:
        return module.run(case)
    except Exception as error:  # noqa: BLE001 - whatever is raised is a finding
        where = ""
        for frame in traceback.extract_tb(error.__traceback__):
            if "/kernelrt/" in frame.filename:
                where = f" [{Path(frame.filename).name}:{frame.name}]"
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text[:400]}{where}"


def limit(memory: int) -> None:
    """Low priority, no core dumps, and an end to a flood of memory before the machine's."""
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def main() -> None:
    name, memory = sys.argv[1], int(sys.argv[2])
    limit(memory)
    faulthandler.enable()
    with os.fdopen(os.dup(1), "w", encoding="ascii") as out:
        os.dup2(2, 1)  # whatever a case prints stays out of the replies

        def reply(**what: Any) -> None:
            print(json.dumps(what), file=out, flush=True)

        module = load(name)
        size = getattr(module, "size", lambda _: 1)
        reply(ready=True)
        for line in sys.stdin:
            request = json.loads(line)
            if "case" in request:
                reply(fail=outcome(module, request["case"]))
                continue
            end = time.monotonic() + request["seconds"]
            index = request["first"]
            while time.monotonic() < end and index < request["first"] + request["most"]:
                case = draw(module, [*request["key"], index])
                fail = outcome(module, case)
                reply(index=index, size=size(case), fail=fail, case=case if fail else None)
                index += 1
            reply(done=True)


if __name__ == "__main__":
    main()
