"""Random testing by the minute or by the hour: ``python -m tests.soak --minutes 3 --seed 1``.

A generator is a module of ``tests.soak.generators`` with

``generate(rng) -> case``
    Draws a random case: plain data that JSON can hold. `rng` is a ``numpy.random.Generator``.
``run(case) -> str | None``
    Returns the failure, as ``kind: detail``, or None. An exception is a failure, too, unless the
    generator expected it. The truth comes from torch or NumPy in float64, never from kernelrt.
``shrink(case) -> iterable of cases``
    Yields smaller cases to try, the smallest first. They need not be valid: a case without meaning
    counts as passed.
``source(case) -> str``
    Returns a program that fails where the case does.
``key(case) -> str``, optional
    Equal for cases that most likely fail for one cause; only one of them is reported.
``SECONDS``, ``TRIES``, ``SHARE``, optional
    CPU time after which a case counts as a hang, number of tries of a nondeterministic case, and
    the generator's share of the time relative to the others (1).

A generator reports its comparisons with ``record.note(unit, times)``; cases that torch refuses are
not counted. In every case, no kernel may have more than 300 kB of LLVM IR, and no plan may take
more than 5 s of CPU time to make (`tests.soak.record`).

Cases run in separate processes with limits of memory and time, so a crash, an abort, a hang or
excessive memory use is a finding like any other.
"""
