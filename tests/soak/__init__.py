"""Random testing by the minute or by the hour: ``python -m tests.soak --minutes 3 --seed 1``.

A generator is a module of ``tests.soak.generators`` with

``generate(rng) -> case``
    A random case: plain data that JSON can hold. `rng` is a ``numpy.random.Generator``.
``run(case) -> str | None``
    What is wrong, as ``kind: detail``, or None. What it raises is a failure, too, unless the
    generator expected it. Truth comes from torch or NumPy in float64, never from kernelrt.
``shrink(case) -> iterable of cases``
    Smaller cases to try, the smallest first. They need not be valid: a case that has no meaning
    is one in which nothing is wrong.
``source(case) -> str``
    A program that fails where the case does.
``size(case) -> int``, optional
    How many single checks the case makes (1 where it is missing).
``key(case) -> str``, optional
    Equal for cases that most likely fail for one cause; one of them is reported.
``SECONDS``, ``TRIES``, optional
    After how much computing a case hangs, and how often a case that depends on chance is tried.

Cases run in processes of their own with a limit of memory and of time, so a crash, an abort, a
hang or a flood of memory is a finding like any other.
"""
