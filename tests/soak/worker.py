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

from tests.soak import record
from tests.support.package import is_in_package

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

TESTS = Path(__file__).parents[1]
NICE = 10


def load(name: str) -> ModuleType:
    """Return the generator called `name`."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))  # tests/support is imported as `support`
    return importlib.import_module(f"tests.soak.generators.{name}")


def draw(module: ModuleType, key: list[int]) -> Any:
    """Return the case of a key, passed through JSON so that it equals its text.

    In half of the cases new graphs are compiled, not interpreted.
    """
    rng = np.random.default_rng(key)
    case = module.generate(rng)
    if isinstance(case, dict):
        case["interprets"] = bool(rng.random() < 0.5)
    return json.loads(json.dumps(case))


def outcome(module: ModuleType, case: Any) -> str | None:
    """Return the failure of a case, or None."""
    return recorded(module, case)[0]


def recorded(module: ModuleType, case: Any) -> tuple[str | None, record.Record]:
    """Return the failure of a case, or None, and the record of its work."""
    with record.begun() as done:
        wrong = attempt(module, case)
    return wrong or done.excess(), done


def attempt(module: ModuleType, case: Any) -> str | None:
    """Return the failure of a case's results, whatever they cost."""
    from kernelrt.tensor.eager.plan_cache import plans

    before = plans.interprets
    plans.interprets = not isinstance(case, dict) or case.get("interprets", True)
    try:
        return module.run(case)
    except Exception as error:  # noqa: BLE001 - any error is a finding
        where = ""
        for frame in traceback.extract_tb(error.__traceback__):
            if is_in_package(frame.filename):
                where = f" [{Path(frame.filename).name}:{frame.name}]"
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text[:400]}{where}"
    finally:
        if plans.interprets != before:
            plans.interprets = before
            plans.clear()


def limit(memory: int) -> None:
    """Set a low priority, no core dumps, and a memory limit below the machine's."""
    os.nice(max(0, NICE - os.nice(0)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def main() -> None:
    name, memory = sys.argv[1], int(sys.argv[2])
    limit(memory)
    faulthandler.enable()
    with os.fdopen(os.dup(1), "w", encoding="ascii") as out:
        os.dup2(2, 1)  # keeps output of a case out of the replies

        def reply(**what: Any) -> None:
            print(json.dumps(what), file=out, flush=True)

        module = load(name)
        with record.watching():
            reply(ready=True)
            for line in sys.stdin:
                request = json.loads(line)
                if "case" in request:
                    reply(fail=outcome(module, request["case"]))
                else:
                    hunt(module, request, reply)


def hunt(module: ModuleType, request: dict[str, Any], reply: Callable[..., None]) -> None:
    """Run cases of a key until the requested seconds are over."""
    end = time.monotonic() + request["seconds"]
    index = request["first"]
    while time.monotonic() < end:
        case = draw(module, [*request["key"], index])
        fail, done = recorded(module, case)
        reply(index=index, done=done.plain(), fail=fail, case=case if fail else None)
        index += 1
    reply(over=True)


if __name__ == "__main__":
    main()
