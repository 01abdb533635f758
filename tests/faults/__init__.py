"""Planted faults: how many of the mistakes that changes make do the tests find?

``table.py`` lists 40 mistakes, each in one line of the package: eight in each of ``schedule``,
``codegen``, ``tensor`` (with ``nn``), ``jit`` (with ``func`` and ``runtime``) and ``csrc`` (with
the Cython modules and ``backend``). Each gives a user a wrong result, a wrong error, a crash or a
hang; none only costs time. Some lie on paths that most programs take. Others show in a rare case
only: an odd size, one type, a size known at run time, a loop with a condition or in reverse,
several threads.

``python -m tests.faults`` copies the tree, plants one fault, builds what it changes, and runs
pytest until the first failure, the tests that the change most likely breaks first::

    python -m tests.faults                          # the default run of pytest, for all faults
    python -m tests.faults flip-twice while-late    # for two of them
    python -m tests.faults --pytest "--all -n 2" --resume full.jsonl
    python -m tests.faults --check                  # only plant each fault and compile it

A run without any fault comes first. It has to pass: a test that fails anyway finds nothing.
``--resume FILE`` appends each result to the file as a line of JSON, and leaves out what is there
already. ``--write`` puts all results, also those of other arguments in that file, into
``RESULTS.md``.

How to read the results
-----------------------
found
    A test failed, or pytest ended in another way than without the fault. The line names the first
    test that failed: look whether that test is about the fault.
hang
    The run passed its limit of time: twice as long as without the fault (times ``--jobs``), and at
    least ``--least`` seconds. It counts as found, but a test with a limit of its own says more.
missed
    All tests passed. Write the test that is missing, for the kind of mistake and not for this line.
broken
    The fault could not be planted or built, or there was no test to run. It does not count.

A fault changes with its line: ``test_faults.py`` fails until the table has the new line. Where a
line is gone, put another fault of the same kind into the table.
"""
