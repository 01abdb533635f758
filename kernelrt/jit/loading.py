"""Open model files: load() gives functions that are called like the jitted functions saved."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kernelrt import dtype as dt
from kernelrt.device import registry
from kernelrt.device.buffer import Buffer
from kernelrt.errors import (
    DTypeError,
    GradientError,
    JitError,
    KernelrtError,
    ModelFileError,
    a_type,
)
from kernelrt.ir.shape import format_shape
from kernelrt.jit import tracing
from kernelrt.jit.binding import MOST_WRITTEN_RANGES, PendingWork
from kernelrt.jit.epochs import Epochs
from kernelrt.jit.forms import RANDOM_STATE, constant_of, constant_text, form_of, template_of
from kernelrt.jit.loaded_plan import LoadedPlan
from kernelrt.jit.parameters import SavedParameters
from kernelrt.jit.signature import Array, Float, Spec, Static, flatten_arguments, normalize, spec_of
from kernelrt.native.core import Model, under_locks
from kernelrt.native.replay import MISMATCH, Replay
from kernelrt.native.routines import BY_NAME
from kernelrt.native.signature import ARRAY, FLOAT, STATIC, WHOLE
from kernelrt.tensor import Tensor, is_tracing, state
from kernelrt.tensor.autograd.tags import Severed
from kernelrt.tensor.rng.stream import Generator
from kernelrt.tensor.tracing.trace import forbid
from kernelrt.util.atomic_file import checked_path, path_text

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from kernelrt.jit.signature import Template

__all__ = ["Described", "LoadedFunction", "LoadedModel", "load"]

MOST_SIZES: Final = 1024
"""Maximum number of size combinations that a function keeps; one more drops all."""
_DTYPES = {dtype.code: dtype for dtype in dt.ALL}
_JSON: Final = json.JSONDecoder()


def load(
    source: str | os.PathLike[str] | bytes, *, trusted_digest: str | None = None
) -> LoadedModel:
    """Open a model file that :func:`kernelrt.save` or ``JitFunction.save`` wrote.

    Nothing is compiled, and llvmlite is not needed. A model file contains machine code, so open
    only files that you trust as you trust a library. Checksums in the file detect damage, but not
    manipulation.

    Parameters
    ----------
    source : str, path or bytes
        The file, or its content.
    trusted_digest : str, optional
        SHA-256 of the file in hexadecimal digits. A file with another digest is not opened.

    Returns
    -------
    LoadedModel
        The functions, as attributes, and their state.

    Raises
    ------
    ModelFileError
        The file cannot be read, is damaged, was made by another version or for another kind of
        processor, or its digest differs from `trusted_digest`.
    FileNotFoundError
        There is no such file.

    See Also
    --------
    kernelrt.save : Write a file.

    Examples
    --------
    >>> import tempfile
    >>> double = krt.jit(lambda x: x * 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     double.save(f"{folder}/double.krt", np.ones(3, np.float32))
    ...     model = krt.load(f"{folder}/double.krt")
    >>> model(np.ones(3, np.float32)).tolist()
    [2.0, 2.0, 2.0]
    """
    forbid("load()")
    if isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
    else:
        path = path_text(source, expected="a str, a path or bytes")
        try:
            if trusted_digest is None:
                return LoadedModel(path)
            data = checked_path(path).read_bytes()
        except (ModelFileError, OSError) as error:
            if not checked_path(path).exists():
                raise FileNotFoundError(
                    f"path: there is no file {path!r}; pass the path of a file that kernelrt.save "
                    "wrote"
                ) from None
            if isinstance(error, OSError):
                raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
            raise
    if trusted_digest is not None:
        if not isinstance(trusted_digest, str):
            raise DTypeError(
                "trusted_digest: expected a str of hexadecimal digits, not "
                f"{a_type(trusted_digest)}"
            )
        found = hashlib.sha256(data).hexdigest()
        if found != trusted_digest.strip().lower():
            raise ModelFileError(
                f"trusted_digest: the file has the SHA-256 {found}, not {trusted_digest}; open the "
                "file with this digest, or pass its new digest if you trust it"
            )
    return LoadedModel(data)


class LoadedModel:
    """The functions of a model file, and the state that they share.

    Functions are attributes: ``model.predict(x)``. If the model has only one function, you can also
    call the model itself.

    Attributes
    ----------
    functions : dict of str to LoadedFunction
        The functions by name.

    If a function has the name of a method, such as ``save``, write ``model["save"]``.

    Examples
    --------
    >>> import tempfile
    >>> layer = krt.nn.Linear(2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     krt.save(f"{folder}/net.krt", predict=(krt.jit(layer), np.ones((1, 2), np.float32)))
    ...     model = krt.load(f"{folder}/net.krt")
    >>> model
    LoadedModel(predict(input: float32 (1, 2)))
    >>> sorted(model.state)
    ['bias', 'weight']
    """

    def __init__(self, source: str | bytes) -> None:
        blocks: list[Buffer] = []

        def allocate(nbytes: int) -> int:
            block = Buffer(nbytes, dt.uint8)
            blocks.append(block)
            return block.address

        self._model = Model(source, BY_NAME, allocate)
        [self._memory] = blocks
        try:
            self.functions = self._opened()
            # Found without __getattr__, which takes longer than a small function.
            own = {name: f for name, f in self.functions.items() if not hasattr(type(self), name)}
            self.__dict__ |= {name: f for name, f in own.items() if name not in self.__dict__}
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            if isinstance(error, KernelrtError):
                raise
            raise ModelFileError(
                f"the file is damaged: its description of functions is wrong ({error}); save the "
                "functions again"
            ) from error

    @functools.cached_property
    def state(self) -> Mapping[str, Tensor]:
        """Tensors by name: the parameters, and other state that had a name when it was saved.

        They share memory with the functions: assign to them with ``assign`` or ``copy_``.

        Examples
        --------
        >>> import tempfile
        >>> layer = krt.nn.Linear(2, 1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     krt.jit(layer).save(f"{folder}/net.krt", np.ones((1, 2), np.float32))
        ...     model = krt.load(f"{folder}/net.krt")
        >>> _ = model.state["weight"].copy_(krt.zeros(1, 2))
        >>> model(np.ones((1, 2), np.float32)).equal(layer.bias[None])
        True
        """
        return MappingProxyType({
            name: Tensor._over(self._buffer(address, shape, code), shape)
            for name, code, shape, address in self._model.states()
        })

    def _opened(self) -> dict[str, LoadedFunction]:
        """Make the functions."""
        plans: dict[int, LoadedPlan] = {}
        bodies: set[int] = set()
        for number in range(self._model.n_plans):
            plans[number] = LoadedPlan(self._model, number, plans)
            bodies |= {body for _, many in self._model.bodies(number) for body in many}
        self._plans = [plan for number, plan in plans.items() if number not in bodies]
        # No tensor shares memory of the model but those of the state.
        pending = PendingWork((self._memory,) if self._model.n_states else ())
        text, count = self._model.python, len(self._model)
        # Not json.loads(): the patterns with which it skips spaces take longer than the rest.
        described = _JSON.raw_decode(text)[0]["functions"] if text else [
            _without_arguments(len(self._model.ports(number, 1))) for number in range(count)
        ]  # fmt: skip
        found: dict[str, list[_Signature]] = {}
        for number, description in enumerate(described):
            plan, preparation = self._model.plans_of(number)
            if preparation is not None:
                plans[plan].prepare_by(plans[preparation], (self._memory.storage,))
            one = _Signature(self._model, number, plans[plan], description, self._memory, pending)
            found.setdefault(self._model.name(number), []).append(one)
        return {name: LoadedFunction(name, many) for name, many in found.items()}

    def _buffer(self, address: int, shape: Sequence[int], code: int) -> Buffer:
        dtype, size = _DTYPES[code], 1
        for axis in shape:
            size *= axis
        return self._memory.view(address - self._memory.address, size, dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model file with the present state. An earlier file stays until it is complete.

        Parameters
        ----------
        path : str or path
            File to write.

        Raises
        ------
        ModelFileError
            The file cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> count = krt.zeros(())
        >>> step = krt.jit(lambda: count.assign(count + 1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     step.save(f"{folder}/count.krt")
        ...     model = krt.load(f"{folder}/count.krt")
        ...     _ = model(), model()
        ...     model.save(f"{folder}/count.krt")
        ...     krt.load(f"{folder}/count.krt")().item()
        3.0
        """
        forbid("save()")
        for tensor in self.state.values():
            tensor.realize()
        target = str(checked_path(path))
        under_locks(self._plans, lambda: self._model.save(target))

    def manual_seed(self, seed: int) -> Self:
        """Set the seed of the random numbers that the functions draw, and restart their stream.

        The numbers are those that the jitted functions draw after ``kernelrt.manual_seed(seed)``.

        Parameters
        ----------
        seed : int
            Number from -2**63 to 2**64 - 1.

        Returns
        -------
        LoadedModel
            This model.

        Examples
        --------
        >>> import tempfile
        >>> noise = krt.jit(lambda: krt.rand(3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     noise.save(f"{folder}/noise.krt")
        ...     model = krt.load(f"{folder}/noise.krt").manual_seed(7)
        >>> _ = krt.manual_seed(7)
        >>> model().equal(noise())
        True
        """
        stream = Generator().manual_seed(seed)._parts()
        for name, part in zip(RANDOM_STATE, stream, strict=True):
            if name in self.state:
                self.state[name].copy_(part)
        return self

    def describe(self) -> list[Described]:
        """Describe the plans of all functions, in the order of the file.

        Returns
        -------
        list of Described
            Name, sizes, inputs and outputs of each plan.
        """
        found = [s.describe() for f in self.functions.values() for s in f.signatures]
        return sorted(found, key=lambda described: described.number)

    def __getattr__(self, name: str) -> LoadedFunction:
        functions: dict[str, LoadedFunction] = self.__dict__.get("functions", {})
        if name in functions:
            return functions[name]
        raise AttributeError(
            f"the model has no function {name!r}; use one of its functions: "
            f"{', '.join(functions) or 'none'}"
        )

    def __getitem__(self, name: str) -> LoadedFunction:
        return self.functions[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.functions]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the only function of the model."""
        if len(self.functions) != 1:
            raise TypeError(
                f"the model has {len(self.functions)} functions, so it cannot be called itself; "
                f"call one of them: {', '.join(self.functions)}"
            )
        [function] = self.functions.values()
        return function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"LoadedModel({', '.join(map(str, self.functions.values()))})"


class Described(NamedTuple):
    """A plan of a model file.

    Attributes
    ----------
    number : int
        Number of the function in the C interface.
    name : str
        Name of the function. A function that was saved for several kinds of arguments has several
        plans.
    sizes : tuple of str
        Names of the sizes that may change.
    inputs, outputs : list of (str, str, tuple)
        Name, dtype and shape of each input or output. If the size of an axis may change, the shape
        has the name of the size; if the size is computed from such sizes, the shape has its present
        value. The dtype of a constant is empty.
    """

    number: int
    name: str
    sizes: tuple[str, ...]
    inputs: list[tuple[str, str, tuple[int | str, ...]]]
    outputs: list[tuple[str, str, tuple[int | str, ...]]]


class _Signature:
    """One plan of a loaded function: the arguments that it takes, and how to run it."""

    def __init__(
        self,
        model: Model,
        number: int,
        plan: LoadedPlan,
        described: Mapping[str, Any],
        memory: Buffer,
        pending: PendingWork,
    ) -> None:
        self.model, self.number, self.plan = model, number, plan
        self.described, self._memory, self._pending = described, memory, pending
        self.inputs = model.ports(number, 0)
        self._outputs = model.ports(number, 1)
        fixed = [
            (True, None) if constant is None else (False, constant_of(*constant))
            for constant in described["fixed"]
        ]
        self._build = tracing.Result(template_of(described["result"]), fixed).builder
        self._replays: dict[tuple[Spec, ...], Replay] = {}
        self._constants: list[str | None] = [value for *_, value, _ in self.inputs]

    @property
    def once(self) -> bool:
        """False, because the plan fits all calls with arguments of its signature."""
        return False

    def fits(self) -> bool:
        """Return True: the plan fits any state."""
        return True

    @property
    def by_value(self) -> frozenset[int]:
        """Positions of the constants."""
        return frozenset(i for i, text in enumerate(self._constants) if text is not None)

    def with_floats(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the leaves; convert an int to a float where the plan takes a float."""
        kinds = [said["kind"] for said in self.described["inputs"]]
        return [
            float(leaf) if kind == "float" and type(leaf) is int else leaf
            for leaf, kind in zip(leaves, kinds, strict=True)
        ]

    def nested_otherwise(self, form: Sequence[Any], keywords: Sequence[str]) -> str:
        """Describe how keywords or nesting of a call differ from the plan's; empty if they fit."""
        if [*keywords] != self.described["keywords"]:
            return f"keywords {', '.join(keywords) or 'none'}"
        if form != self.described["arguments"]:
            return "arguments that are nested in another way, or another number of them"
        return ""

    def differs(self, specs: Sequence[Spec]) -> str:
        """Describe how arguments differ from those that the plan takes; empty if they fit."""
        for i, (spec, said) in enumerate(zip(specs, self.described["inputs"], strict=True)):
            name, code = self.inputs[i][:2]
            constant = self._constants[i]
            if constant is not None:
                if not isinstance(spec, Static) or _text_of(spec.value) != constant:
                    return (
                        f"{name}: {spec}, not {constant} (a constant of the plan; a function saved "
                        "with an array takes any value)"
                    )
            elif said["kind"] == "float":
                if not isinstance(spec, Float):
                    return f"{name}: {spec}, not a float"
            elif not isinstance(spec, Array) or spec.dtype.code != code:
                return f"{name}: {spec}, not {_DTYPES[code].name}"
            elif len(spec.shape) != said["ndim"]:
                return f"{name}: {spec}, not {said['ndim']} axes"
        values = self._values(specs)
        for name, (least, most) in self.plan.bounds.items():
            if not least <= values.get(name, least) <= most:
                return f"a size {name} of {values[name]}, which lies outside {least} to {most}"
        given = self.plan.values_for(values)
        for i, spec in enumerate(specs):
            if isinstance(spec, Array):
                expected = self.model.shape(self.number, 0, i, given)
                if spec.shape != expected:
                    name = self.inputs[i][0]
                    return f"{name}: shape {format_shape(spec.shape)}, not {format_shape(expected)}"
        return ""

    def _values(self, specs: Sequence[Spec]) -> dict[str, int]:
        """Return the sizes that may change."""
        values: dict[str, int] = {}
        for spec, said in zip(specs, self.described["inputs"], strict=True):
            if isinstance(spec, Array):
                values |= {v: int(spec.shape[axis]) for axis, v in said["variables"]}
        return values

    def replay(self, specs: tuple[Spec, ...], template: Template, *, nested: bool) -> Replay:
        """Return the replay for arguments with these specs; make it on first use."""
        found = self._replays.get(specs)
        if found is None:
            if len(self._replays) >= MOST_SIZES:
                self._replays.clear()
            structure = template.structure if nested else None
            found = self._replays[specs] = self._made(specs, structure)
        return found

    def _made(self, specs: tuple[Spec, ...], structure: Any) -> Replay:
        values = self._values(specs)
        given = self.plan.values_for(values)
        writes = self.model.written(self.number)
        bindable = len(writes) <= MOST_WRITTEN_RANGES
        inputs: list[Any] = []
        for spec, (_, code, address, _, sites) in zip(specs, self.inputs, strict=True):
            if isinstance(spec, Static):
                inputs.append((STATIC, spec.value, spec.by_value))
            elif isinstance(spec, Array):
                inputs.append((ARRAY, code, spec.shape, address, sites if bindable else (), WHOLE))
            else:
                inputs.append((FLOAT, code, address))
        arrays = frozenset(i for i, spec in enumerate(specs) if isinstance(spec, Array))
        outputs = [
            (address, code, self.model.shape(self.number, 1, i, given), sites)
            for i, (_, code, address, _, sites) in enumerate(self._outputs)
        ]
        return Replay(
            self.plan, inputs, outputs, Tensor,
            build=self._build,
            bindings=self.plan.bindings(values) if self.plan.variables else None,
            structure=structure,
            registers=self._pending.registers,
            make_way=self._pending,
            births=state.births,
            writes=writes,
            severed=[(None, arrays)] * len(outputs),
            by_argument=Severed(self.model.name(self.number), None),
            keep=(self.model, self._memory),
            results_from=registry.allocator("CPU"),
        )  # fmt: skip

    def describe(self) -> Described:
        """Describe the plan."""
        values = self.plan.values_for({})
        sides = []
        for side, ports in enumerate((self.inputs, self._outputs)):
            found = []
            for i, (name, code, _, constant, _) in enumerate(ports):
                shape: list[int | str] = [*self.model.shape(self.number, side, i, values)]
                said = {} if side else self.described["inputs"][i]
                for axis, variable in said.get("variables", ()):
                    shape[axis] = variable
                dtype = "" if constant is not None else _DTYPES[code].name
                found.append((name, dtype, tuple(shape)))
            sides.append(found)
        return Described(self.number, self.model.name(self.number), self.plan.variables, *sides)

    def __str__(self) -> str:
        texts = []
        for (name, dtype, shape), said, constant in zip(
            self.describe().inputs, self.described["inputs"], self._constants, strict=True
        ):
            if constant is not None:
                texts.append(f"{name}: {constant}")
            elif said["kind"] == "float":
                texts.append(f"{name}: float")
            else:
                texts.append(f"{name}: {dtype} ({', '.join(map(str, shape))})")
        return ", ".join(texts)


class LoadedFunction(Epochs[Any]):
    """A function of a model file. It is called like the jitted function that was saved.

    Attributes
    ----------
    name : str
        Name of the function in the file.

    Examples
    --------
    >>> import tempfile
    >>> double = krt.jit(lambda x: x * 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     krt.save(f"{folder}/double.krt", double=(double, np.ones(3, np.float32)))
    ...     model = krt.load(f"{folder}/double.krt")
    >>> print(model.double)
    double(x: float32 (3))
    >>> model.double(np.ones(4, np.float32))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    kernelrt.errors.JitError: double: the model file has no plan for x: shape (4,), not (3,); ...
    """

    def __init__(self, name: str, signatures: Sequence[_Signature]) -> None:
        self.name = self._name = name
        self.signatures = signatures
        names = signatures[0].described["parameters"]
        self._parameters = SavedParameters(names)
        self.__name__ = name
        self._require_empty((tracing.active, state.differentiating))
        self._name_parameters(names)

    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if state.local.trace is not None or is_tracing():
            raise JitError(
                f"{self.name}: a function of a model file cannot be part of a traced function; "
                "call it outside, or trace the function that was saved"
            )
        if threading.get_ident() in state.differentiating:
            raise GradientError(
                f"{self.name}: a function of a model file cannot be differentiated; differentiate "
                "the function that was saved, or call this one outside"
            )
        _, leaves, replay = self._variant_for(args, kwargs)
        result = replay(*leaves)
        if result is MISMATCH:
            raise JitError(
                f"{self.name}: an argument changed during the call; call again, and do not change "
                "it meanwhile"
            )
        return result

    def _variant_for(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, sized: bool = True  # noqa: ARG002
    ) -> tuple[_Signature, list[Any], Replay]:
        """Return the plan for these arguments, their leaves, and the replay."""
        args, rest = self._parameters.positional(self.name, args, kwargs)
        args, rest = self._checked(args, rest)
        names = [*self._parameters.names(len(args)), *rest]
        template, named = flatten_arguments(list(zip(names, [*args, *rest.values()], strict=True)))
        form = form_of(template, self.name)
        leaves = [normalize(name, leaf) for name, leaf in named]
        problem = ""
        # Prefer a plan for an int as a constant to one for any float.
        for convert, signature in itertools.product((False, True), self.signatures):
            problem = signature.nested_otherwise(form, [*rest])
            if problem:
                continue
            given = signature.with_floats(leaves) if convert else leaves
            constants = signature.by_value
            specs = tuple(spec_of(leaf, by_value=i in constants) for i, leaf in enumerate(given))
            problem = signature.differs(specs)
            if problem:
                continue
            direct = template.flat and not rest
            replay = signature.replay(specs, template, nested=not direct)
            if not rest and replay not in self._replays:
                if len(self._replays) >= MOST_SIZES:
                    self._clear_replays()
                self._add_replay(replay)
            return signature, given, replay
        raise JitError(
            f"{self.name}: the model file has no plan for {problem}; it has {self}. Save the "
            "function for these arguments, too, or with dynamic sizes"
        )

    def _checked(
        self, args: tuple[Any, ...], rest: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments; sort keyword arguments as in the file.

        Raises
        ------
        TypeError
            No plan takes so many arguments, or these keywords.
        """
        known = [(len(d["names"]) - len(d["keywords"]), d["keywords"])
                 for d in (s.described for s in self.signatures)]  # fmt: skip
        fitting = [keywords for _, keywords in known if {*keywords} == {*rest}]
        if fitting and len(args) in {count for count, _ in known}:
            return args, {name: rest[name] for name in fitting[0]}
        expected = " or ".join(dict.fromkeys(
            f"{count} positional arguments" + (f" and {', '.join(names)}" if names else "")
            for count, names in known
        ))  # fmt: skip
        given = f"{len(args)}" + (f" and {', '.join(rest)}" if rest else "")
        raise TypeError(f"{self.name}() takes {expected}, but got {given}")

    def _drop(self, variant: Any) -> None:
        """Do nothing: a model file has no other plan."""

    def __str__(self) -> str:
        return " or ".join(f"{self.name}({signature})" for signature in self.signatures)

    def __repr__(self) -> str:
        return f"<{self}, loaded>"

    def __reduce__(self) -> Any:
        raise DTypeError(
            f"{self.name}: a function of a model file cannot be pickled; open the file again"
        )


def _text_of(value: object) -> str | None:
    """Return a constant argument as JSON text; None if no model file can hold it."""
    try:
        return constant_text("", value)
    except ModelFileError:
        return None


def _without_arguments(n_outputs: int) -> dict[str, Any]:
    """Return the signature of a plan that was saved without one: it returns its outputs."""
    form = [None] if n_outputs == 1 else [["tuple", n_outputs], *[None] * n_outputs]
    return {
        "parameters": [], "names": [], "keywords": [], "arguments": [["tuple", 0]], "inputs": [],
        "result": form, "fixed": [None] * n_outputs,
    }  # fmt: skip
