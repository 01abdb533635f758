"""Code that a trace runs, wherever the function finds it: what it reads and sets is seen."""

from __future__ import annotations

import builtins
import itertools
import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

X = np.arange(1, 5, dtype=np.float32)
_numbers = itertools.count()


def compiled(source: str, **names: Any) -> types.ModuleType:
    """A module of its own with this source."""
    module = types.ModuleType(f"written{next(_numbers)}")
    vars(module).update(krt=krt, nn=nn, np=np, **names)
    exec(source, vars(module))  # noqa: S102
    return module


# How a function comes to read `scale`: it is called with a tensor.
READERS = {
    "itself": "def run(x): return x * scale",
    "a function": "def inner(x): return x * scale\ndef run(x): return inner(x)",
    "a function in it": "def run(x): return (lambda y: y * scale)(x)",
    "a comprehension": "def run(x): return [x * scale for _ in range(1)][0]",
    "the name is an attribute, too": (
        "class C: scale = 1.0\ncfg = C()\ndef inner(x): return x * scale\n"
        "def run(x): return inner(x) * cfg.scale"
    ),
    "the name is set as an attribute, too": (
        "class C: pass\ndef inner(x): return x * scale\n"
        "def run(x):\n c = C()\n c.scale = 1.0\n return inner(x) * c.scale"
    ),
    "another one sets it": (
        "def put():\n global scale\n scale = 9.0\ndef inner(x): return x * scale\n"
        "def run(x, go=False): return put() if go else inner(x)"
    ),
    "a default": "def inner(x): return x * scale\ndef run(x, g=inner): return g(x)",
    "a static method": (
        "class C:\n @staticmethod\n def m(x): return x * scale\nc = C()\n"
        "def run(x): return c.m(x)"
    ),
    "a static method of a class": (
        "class C:\n @staticmethod\n def m(x): return x * scale\ndef run(x): return C.m(x)"
    ),
    "a class method": (
        "class C:\n @classmethod\n def m(cls, x): return x * scale\nc = C()\n"
        "def run(x): return c.m(x)"
    ),
    "an inherited class method": (
        "class B:\n @classmethod\n def m(cls, x): return x * scale\nclass C(B): pass\n"
        "def run(x): return C.m(x)"
    ),
    "a property": (
        "class C:\n @property\n def v(self): return scale\nc = C()\ndef run(x): return x * c.v"
    ),
    "a property of a module": (
        "class M(nn.Module):\n @property\n def v(self): return scale\n"
        " def forward(self, x): return x * self.v\nm = M()\ndef run(x): return m(x)"
    ),
    "a setter": (
        "class C:\n @property\n def v(self): return None\n @v.setter\n"
        " def v(self, x): x.assign(x * scale)\n"
        "c = C()\ndef run(x):\n y = krt.zeros(4) + x\n c.v = y\n return y"
    ),
    "a partial method": (
        "import functools\nclass C:\n def a(self, k, x): return x * scale * k\n"
        " m = functools.partialmethod(a, 1)\nc = C()\ndef run(x): return c.m(x)"
    ),
    "a jitted method": (
        "class C:\n @krt.jit\n def m(self, x): return x * scale\nc = C()\n"
        "def run(x): return c.m(x)"
    ),
    "what makes an instance": (
        "class C:\n def __init__(self): self.v = scale\ndef run(x): return x * C().v"
    ),
    "a class in a class": (
        "class C:\n class D:\n  @staticmethod\n  def m(x): return x * scale\nc = C()\n"
        "def run(x): return c.D.m(x)"
    ),
    "globals()": "def run(x): return x * globals()['scale']",
}


@pytest.mark.parametrize("way", READERS)
def test_a_global_is_seen_whatever_code_reads_it(way: str) -> None:
    module = compiled(READERS[way], scale=2.0)
    f = krt.jit(module.run)
    for scale in (2.0, 2.0, 3.0, 3.0, 2.0):
        vars(module)["scale"] = scale
        assert f(X).tolist() == (X * scale).tolist() == module.run(krt.tensor(X)).tolist()
    assert len(f.plans) == 2


@pytest.mark.parametrize("way", READERS)
def test_a_builtin_that_is_shadowed_and_a_name_that_comes_later_are_seen(way: str) -> None:
    source = READERS[way].replace("scale", "later")
    module = compiled(source)
    f = krt.jit(module.run)
    with pytest.raises((NameError, KeyError)):
        f(X)
    builtins.later = 2.0  # type: ignore[attr-defined]
    try:
        if way != "globals()":
            assert f(X).tolist() == (X * 2).tolist()
            builtins.later = 4.0  # type: ignore[attr-defined]
            assert f(X).tolist() == (X * 4).tolist()
        vars(module)["later"] = 3.0
        assert f(X).tolist() == (X * 3).tolist()
    finally:
        del builtins.later  # type: ignore[attr-defined]
    del vars(module)["later"]
    with pytest.raises((NameError, KeyError)):
        f(X)


def test_a_branch_for_a_name_that_is_missing() -> None:
    module = compiled(
        "def run(x):\n try:\n  return x * rate\n except NameError:\n  return x + max(1, 7)\n"
    )
    f = krt.jit(module.run)
    assert f(X).tolist() == (X + 7).tolist()
    vars(module)["max"] = min
    assert f(X).tolist() == (X + 1).tolist()
    vars(module)["rate"] = 5.0
    assert f(X).tolist() == (X * 5).tolist()
    del vars(module)["rate"], vars(module)["max"]
    assert f(X).tolist() == (X + 7).tolist()
    assert len(f.plans) == 3


@pytest.mark.parametrize("kinds", [(nn.ReLU, nn.Tanh), (np, nn)])
def test_a_class_or_module_that_is_rebound(kinds: tuple[Any, Any]) -> None:
    source = (
        "def run(x):\n return kind()(x - 2) if isinstance(kind, type) else x * "
        "(2 if hasattr(kind, 'einsum') else 3)\n"
    )
    module = compiled(source, kind=kinds[0])
    f = krt.jit(module.run)
    for kind in (*kinds, *kinds):
        vars(module)["kind"] = kind
        assert f(X).tolist() == module.run(krt.tensor(X)).tolist()
    assert len(f.plans) == 2


LIBRARY = """
factor = 2.0
def g(x): return x * factor
def outer(x): return g(x)
class C:
    @staticmethod
    def m(x): return x * factor
def pick(m, x): return m.g(x)
"""

# How a function uses what a module called `lib`, or `written_lib`, holds.
USERS = {
    "attribute": "def run(x): return x * lib.factor",
    "function": "def run(x): return lib.g(x)",
    "two functions": "def run(x): return lib.outer(x)",
    "class": "def run(x): return lib.C.m(x)",
    "passed on": "def call(m, x): return m.g(x)\ndef run(x): return call(lib, x)",
    "in a closure": "def make(lib):\n def run(x): return lib.g(x)\n return run\nrun = make(lib)",
    "in an object": (
        "class O:\n def __init__(self): self.lib = lib\no = O()\n"
        "def run(x): return o.lib.g(x)"
    ),
    "submodule": "def run(x): return lib.sub.g(x)",
    "getattr": "def run(x): return getattr(lib, 'g')(x)",
    "vars": "def run(x): return vars(lib)['g'](x)",
    "imported": "def run(x):\n import written_lib as m\n return m.g(x)",
    "imported from": "def run(x):\n from written_lib import g\n return g(x)",
    "imported beside": "def run(x):\n from . import g\n return g(x)",
}


@pytest.fixture
def lib(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    module = types.ModuleType("written_lib")
    exec(LIBRARY, vars(module))  # noqa: S102
    vars(module)["sub"] = module
    monkeypatch.setitem(sys.modules, "written_lib", module)
    return module


@pytest.mark.parametrize("way", USERS)
def test_what_a_module_holds_is_seen(way: str, lib: Any) -> None:
    module = compiled(USERS[way], lib=lib, __package__="written_lib")
    f = krt.jit(module.run)
    for factor in (2.0, 2.0, 3.0, 3.0, 2.0):
        lib.factor, lib.unread = factor, object()
        assert f(X).tolist() == (X * factor).tolist()
    assert len(f.plans) == 2
    if way not in ("attribute", "two functions", "class"):
        lib.g = lambda x: x + 1
        assert f(X).tolist() == (X + 1).tolist()


def test_an_attribute_that_a_module_gets_later(lib: Any) -> None:
    module = compiled(
        "def run(x): return x * lib.extra if hasattr(lib, 'extra') else x\n"
        "def tried(x):\n try:\n  return x * lib.extra\n except AttributeError:\n  return x\n",
        lib=lib,
    )
    for f in (krt.jit(module.run), krt.jit(module.tried)):
        assert f(X).tolist() == X.tolist()
        lib.extra = 4.0
        assert f(X).tolist() == (X * 4).tolist()
        del lib.extra
        assert f(X).tolist() == X.tolist()


SETTERS = {
    "a global number": ("def run(x):\n global count\n count += 1\n return x * count", "count"),
    "a global tensor": ("def run(x):\n global last\n last = x * 2\n return last", "last"),
    "a new one": ("def run(x):\n global fresh\n fresh = x * 2\n return fresh", "fresh"),
}


@pytest.mark.parametrize("what", SETTERS)
@pytest.mark.parametrize("call", ["lib.run(x)", "getattr(lib, 'run')(x)", "lib.C.m(x)"])
def test_a_module_s_function_that_sets_globals_is_refused(what: str, call: str) -> None:
    source, name = SETTERS[what]
    library = compiled(
        source + "\nclass C:\n @staticmethod\n def m(x): return run(x)\n", count=0, last=None
    )
    f = krt.jit(compiled(f"def f(x): return {call}", lib=library).f)
    for _ in range(2):
        with pytest.raises(krt.JitError, match=rf"^{name}: "):
            f(X)
    assert library.count == 0
    assert library.last is None
    assert not hasattr(library, "fresh")


@pytest.mark.parametrize(
    "line", ["lib.count += 1", "lib.last = x * 2", "lib.fresh = x * 2", "setattr(lib, 'last', x)",
             "vars(lib)['last'] = x * 2", "globals()['mine'] = x * 2"]
)  # fmt: skip
def test_attributes_of_modules_that_are_set_are_refused(line: str) -> None:
    library = compiled("", count=0, last=None)
    module = compiled(f"def f(x):\n {line}\n return x", lib=library, mine=None)
    f = krt.jit(module.f)
    for _ in range(2):
        with pytest.raises(krt.JitError, match=r"^(lib\.\w+|mine): "):
            f(X)
    assert (library.count, library.last, module.mine) == (0, None, None)
    assert not hasattr(library, "fresh")


def test_installed_modules_are_not_followed() -> None:
    library = compiled("factor = 2.0\ndef g(x): return x * factor\n")
    library.__file__ = "/usr/lib/python3/site-packages/library/__init__.py"
    f = krt.jit(compiled("def f(x): return lib.g(x)", lib=library).f)
    assert f(X).tolist() == (X * 2).tolist()
    vars(library)["factor"] = 3.0
    assert f(X).tolist() == (X * 2).tolist()
