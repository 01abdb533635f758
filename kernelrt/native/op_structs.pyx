# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Convert op tuples, and changes of them, to the C structures that the core reads."""

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.number cimport PyNumber_Index
from libc.stdint cimport int64_t

from kernelrt.native.krt cimport (
    KRT_CUSTOM, KRT_ITERATION, KRT_KERNEL, KRT_REGION, KRT_SET_CHUNKS, KRT_SET_POINTER,
    KRT_SET_VALUE, krt_binding, krt_edit, krt_edit_kind, krt_fault, krt_initial, krt_kernel,
    krt_kind, krt_op, krt_plan,
)

from kernelrt import errors


cdef class Ops:
    """A sequence of op tuples as C structures, which live as long as this object."""

    def __init__(self, ops):
        cdef list rows = op_rows(ops)
        self.allocate(rows)
        self.fill(rows)

    cdef int allocate(self, list rows) except -1:
        cdef size_t n_bufs = 0, n_vals = 0, n_deps = 0
        for row in rows:
            n_bufs += <size_t> len(row[2])
            n_vals += <size_t> len(row[3])
            n_deps += <size_t> len(row[8])
        self.n = <size_t> len(rows)
        self.customs = {}
        self.regions = {}
        self.ops = <krt_op *> PyMem_Calloc(self.n + 1, sizeof(krt_op))
        self.bufs = <void **> PyMem_Calloc(n_bufs + 1, sizeof(void *))
        self.vals = <int64_t *> PyMem_Calloc(n_vals + 1, sizeof(int64_t))
        self.deps = <size_t *> PyMem_Calloc(n_deps + 1, sizeof(size_t))
        if not (self.ops and self.bufs and self.vals and self.deps):
            raise errors.OutOfMemoryError("could not allocate the tables of a plan")
        return 0

    def __dealloc__(self):
        PyMem_Free(self.ops)
        PyMem_Free(self.bufs)
        PyMem_Free(self.vals)
        PyMem_Free(self.deps)

    cdef int fill(self, list rows) except -1:
        cdef void **bufs = self.bufs
        cdef int64_t *vals = self.vals
        cdef size_t *deps = self.deps
        cdef krt_op *op
        cdef Region region
        cdef size_t i
        for i in range(self.n):
            (kind, fn, buf_row, val_row, chunks, core_slot, flags, cost_ns, dep_row,
             slices) = rows[i]
            op = self.ops + i
            op.kind = <krt_kind> small_int(i, "kind", kind)
            op.fn = NULL
            if op.kind == KRT_KERNEL:
                op.fn = <krt_kernel> address_of(i, "fn", fn)
            elif op.kind == KRT_CUSTOM:
                if not callable(fn):
                    raise errors.PlanBuildError(f"op {i}: fn: must be callable, not {fn!r}")
                self.customs[i] = fn
            elif op.kind == KRT_REGION:
                region = Region(i, fn)
                op.region = &region.region
                self.regions[i] = region
            op.bufs = bufs
            op.vals = vals
            op.deps = deps
            op.n_bufs = <size_t> len(buf_row)
            op.n_vals = <size_t> len(val_row)
            op.n_deps = <size_t> len(dep_row)
            for item in buf_row:
                bufs[0] = address_of(i, "bufs", item)
                bufs += 1
            for item in val_row:
                vals[0] = integer(i, "vals", item)
                vals += 1
            for item in dep_row:
                deps[0] = <size_t> address_of(i, "deps", item)
                deps += 1
            op.chunks = integer(i, "chunks", chunks)
            op.core_slot = integer(i, "core_slot", core_slot)
            op.flags = <unsigned int> small_int(i, "flags", flags)
            op.cost_ns = integer(i, "cost_ns", cost_ns)
            op.slices = integer(i, "slices", slices)
        return 0


cdef class Region:
    """The description of a region op as a C structure, which lives as long as this object."""

    def __init__(self, size_t op, described):
        if not isinstance(described, tuple) or len(described) != 8:
            raise errors.PlanBuildError(
                f"op {op}: fn: must describe a region as (bodies, count, reverse, count_slot, "
                f"condition_slot, choice_slot, copies, bindings), not {described!r}"
            )
        bodies, count, reverse, count_slot, condition_slot, choice_slot, copies, bindings = described
        cdef tuple all_copies = tuple(copies), all_bindings = tuple(bindings)
        cdef size_t i
        self.bodies = tuple(bodies)
        self.region.n_bodies = <size_t> len(self.bodies)
        self.region.n_initial = <size_t> len(all_copies)
        self.region.n_bindings = <size_t> len(all_bindings)
        self.plans = <krt_plan **> PyMem_Calloc(self.region.n_bodies + 1, sizeof(krt_plan *))
        self.initial = <krt_initial *> PyMem_Calloc(self.region.n_initial + 1,
                                                    sizeof(krt_initial))
        self.bindings = <krt_binding *> PyMem_Calloc(self.region.n_bindings + 1,
                                                     sizeof(krt_binding))
        if not (self.plans and self.initial and self.bindings):
            raise errors.OutOfMemoryError("could not allocate the tables of a plan")
        self.region.bodies = self.plans
        self.region.initial = self.initial
        self.region.bindings = self.bindings
        self.region.count = integer(op, "count", count)
        self.region.reverse = bool(reverse)
        self.region.count_slot = integer(op, "count_slot", count_slot)
        self.region.condition_slot = integer(op, "condition_slot", condition_slot)
        self.region.choice_slot = integer(op, "choice_slot", choice_slot)
        for i in range(self.region.n_initial):
            dst, src, nbytes = all_copies[i]
            self.initial[i].dst = position(op, "copies", dst)
            self.initial[i].src = position(op, "copies", src)
            self.initial[i].nbytes = position(op, "copies", nbytes)
        for i in range(self.region.n_bindings):
            body, where, at, slot, offset, stride = all_bindings[i]
            self.bindings[i].body = position(op, "bindings", body)
            self.bindings[i].op = position(op, "bindings", where)
            self.bindings[i].at = position(op, "bindings", at)
            self.bindings[i].slot = KRT_ITERATION
            if slot != -1:
                self.bindings[i].slot = position(op, "bindings", slot)
            self.bindings[i].offset = integer(op, "bindings", offset)
            self.bindings[i].stride = integer(op, "bindings", stride)

    def __dealloc__(self):
        PyMem_Free(self.plans)
        PyMem_Free(self.initial)
        PyMem_Free(self.bindings)


cdef size_t position(size_t op, str field, value) except? 7777:
    cdef int64_t wide = integer(op, field, value)
    if wide < 0:
        raise errors.PlanBuildError(f"op {op}: {field}: {value!r} is negative")
    return <size_t> wide


cdef list op_rows(ops):
    """Return `ops` with inner sequences as tuples, so that later code cannot change lengths."""
    rows = []
    for i, row in enumerate(ops):
        try:
            kind, fn, bufs, vals, chunks, core_slot, flags, cost_ns, deps, *rest = row
            [slices] = rest or [0]
            rows.append((kind, fn, tuple(bufs), tuple(vals), chunks, core_slot, flags, cost_ns,
                         tuple(deps), slices))
        except (TypeError, ValueError) as error:
            raise errors.PlanBuildError(
                f"op {i}: expected (kind, fn, bufs, vals, chunks, core_slot, flags, cost_ns, "
                f"deps, slices), not {row!r}: {error}"
            ) from None
    return rows


cdef int64_t integer(size_t op, str field, value) except? -7:
    try:
        return PyNumber_Index(value)
    except (TypeError, OverflowError):
        raise errors.PlanBuildError(
            f"op {op}: {field}: must be a 64-bit integer, not {value!r}"
        ) from None


cdef int small_int(size_t op, str field, value) except? -7:
    cdef int64_t wide = integer(op, field, value)
    if wide < 0 or wide > 255:
        raise errors.PlanBuildError(f"op {op}: {field}: {value!r} is outside the range 0 to 255")
    return <int> wide


cdef void *address_of(size_t op, str field, value) except? NULL:
    try:
        return <void *> <size_t> PyNumber_Index(value)
    except (TypeError, OverflowError):
        what = "the index of an earlier op" if field == "deps" else "an address"
        raise errors.PlanBuildError(
            f"op {op}: {field}: must be {what}, not {value!r}"
        ) from None


cdef class Edits:
    """Changes of a plan, converted before the first of them is made."""

    def __init__(self, tuple pointers, tuple values, tuple chunks):
        cdef size_t count = len(pointers) + len(values) + len(chunks)
        self.items = <krt_edit *> PyMem_Calloc(count + 1, sizeof(krt_edit))
        if self.items == NULL:
            raise errors.OutOfMemoryError("could not allocate the changes of a plan")
        for op, n in chunks:
            self.add(KRT_SET_CHUNKS, op, 0, integer(op, "chunks", n))
        for op, slot, value in values:
            self.add(KRT_SET_VALUE, op, slot, integer(op, "value", value))
        for op, slot, address in pointers:
            self.add(KRT_SET_POINTER, op, slot, <int64_t> address_of(op, "address", address))

    def __dealloc__(self):
        PyMem_Free(self.items)

    cdef int add(self, krt_edit_kind kind, size_t op, size_t slot, int64_t value) except -1:
        cdef krt_edit *edit = self.items + self.n
        edit.kind = kind
        edit.op = op
        edit.slot = slot
        edit.value = value
        self.n += 1
        return 0


cdef class Exchange:
    """Replacement kernels, converted before the first of them is put into the plan."""

    def __init__(self, items):
        cdef list rows = sorted(items, key=lambda item: item[0])
        cdef size_t i
        self.where = <size_t *> PyMem_Calloc(<size_t> len(rows) + 1, sizeof(size_t))
        if self.where == NULL:
            raise errors.OutOfMemoryError("could not allocate the changes of a plan")
        for i in range(<size_t> len(rows)):
            self.where[i] = <size_t> integer(i, "op", rows[i][0])
        self.ops = Ops([(<int> KRT_KERNEL, fn, (), vals, chunks, core_slot, 0, cost_ns, (), *slices)
                        for _, fn, vals, chunks, core_slot, cost_ns, *slices in rows])

    def __dealloc__(self):
        PyMem_Free(self.where)


cdef class Addressed:
    """A custom function that receives views of its op's buffers, at their addresses in the run.

    It may write to the first `n_results` views. It must not keep any view.
    """

    def __init__(self, function, nbytes, Py_ssize_t n_results):
        self.function = function
        self.nbytes = tuple(nbytes)
        self.n_results = n_results

    def __call__(self):
        raise TypeError("only the plan that this function belongs to can call it")


cdef int call(object function, krt_plan *plan, size_t op, krt_finder find) except -1:
    """Call a custom function of a plan."""
    cdef Addressed own
    cdef krt_fault fault
    cdef void *address = NULL
    cdef Py_ssize_t slot
    cdef list views
    if type(function) is not Addressed:
        function()
        return 0
    own = <Addressed> function
    views = []
    for slot in range(len(own.nbytes)):
        find(plan, op, <size_t> slot, &address, &fault)
        views.append(PyMemoryView_FromMemory(
            <char *> address, <Py_ssize_t> own.nbytes[slot],
            PyBUF_WRITE if slot < own.n_results else PyBUF_READ))
    own.function(views)
    return 0
