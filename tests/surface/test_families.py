"""The families of methods that Tensor is made of: none hides what another defines."""

from __future__ import annotations

from collections import defaultdict

import kernelrt as krt
from kernelrt.util.unsupported_names import Lacking

#: What a family defines again on purpose.
KNOWN = {
    "__hash__", "__slots__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__",
    "__new__",  # each class of Cython's has one
}  # fmt: skip


def test_no_family_hides_a_name_of_another() -> None:
    classes = [c for c in krt.Tensor.__mro__ if c not in (krt.Tensor, object)]
    owners = defaultdict(list)
    for family in classes:
        for name, value in vars(family).items():
            if name not in KNOWN and not isinstance(value, Lacking):
                owners[name].append(family.__name__)
    assert not {name: found for name, found in owners.items() if len(found) > 1}
