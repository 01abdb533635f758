"""Test suites of other projects, run against kernelrt: ``python -m tests.conformance``.

PyTorch ships samples of the arguments of its operations (``op_db``) and of its modules
(``module_db``). Each sample goes to PyTorch and to kernelrt, eagerly and in a jitted function;
values, types, shapes and first gradients are compared. ``--array-api-tests`` runs the suite of the
array API standard over `kernelrt.array_api`.

`known.py` lists where kernelrt differs on purpose. ``--write`` keeps the result as
``docs/conformance.md``.
"""
