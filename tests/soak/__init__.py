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
``key(case) -> str``, optional
    Equal for cases that most likely fail for one cause; one of them is reported.
``SECONDS``, ``TRIES``, ``SHARE``, optional
    After how much computing a case hangs, how often a case that depends on chance is tried, and
    how much time the generator gets beside the others (1).

What was in fact compared a generator tells by ``record.note(unit, times)``; what torch refuses is
not counted. Whatever a case is about, none of its kernels may have more than 300 kB of LLVM IR,
and none of its plans may take more than 5 s of computing to make (`tests.soak.record`).

Cases run in processes of their own with a limit of memory and of time, so a crash, an abort, a
hang or a flood of memory is a finding like any other.
"""
