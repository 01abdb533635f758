# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Templates: cached graphs of operations, instantiated without running their Python code.

An operation has no effect except its result, and the graph of the result depends only on the
arguments: on the values of numbers and strings, and on the properties of tensors that `describe`
puts into the key. The first call with a key records a template of the graph, and later calls
instantiate it. A template refers to no node and no tensor. tests/surface/test_templates.py compares
both graphs for every operation.
"""

from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from kernelrt.native.array_handle cimport ArrayHandle, Link
from kernelrt.native.fast_paths cimport LazyHandle, adopted, bare, made, node_of, settle, shown
from kernelrt.native.memory cimport Exporter
from kernelrt.native.thread_modes cimport (
    KRT_SCOPE, Moment, Operation, Recording, debugging, debugs, disturbed, get, now, reads,
    records_gradients, tracing, use_templates,
)
from kernelrt.native.node cimport Node, intern, is_plain
from kernelrt.native.source_lines cimport epoch, here_of
from kernelrt.native.graph_key cimport lineage_of

from types import FunctionType

from kernelrt import errors
from kernelrt.native.node import substitute

cdef enum:
    MOST_TEMPLATES = 1024  # maximum per operation
    MOST_STEPS = 1024  # maximum per template
    MOST_ITEMS = 64  # maximum in a list or tuple among the arguments
    MOST_TRANSPARENT = 16  # maximum of transparent nodes in the key of an operand
    MOST_REFUSED = 64  # successive keys without a template, before only repeated keys get one

cdef object BUFFER = None
cdef object CONST = None
cdef object DETACH = None
cdef object CUSTOM = None
cdef object BOOL = None
cdef object layout_of = None
cdef object INDEX = None
cdef object unlink = None
cdef object NO_INDEX = object()  # placeholder if the call is not an indexing operation
cdef frozenset LEAVES = frozenset()
cdef frozenset TRANSPARENT = frozenset()
cdef frozenset LOGIC = frozenset()
cdef object DTYPE = None
cdef tuple PLAIN = ()


def _name_ops(buffer, constant, detach, frozenset leaves, frozenset transparent,
              frozenset logic):
    """Set some ops, the ops of leaves without data, and the transparent ops.

    Keys describe the operands of transparent ops. Ops in `logic` are transparent if they make
    bools, because a mask is often computed from another operand of the same call.
    """
    global BUFFER, CONST, DETACH, LEAVES, TRANSPARENT, LOGIC
    BUFFER, CONST, DETACH, LEAVES = buffer, constant, detach, leaves
    TRANSPARENT, LOGIC = transparent, logic


def _name_views(layout, make_ordinary, index):
    """Set two functions of views, and the INDEX kind.

    `layout` returns the layout of a view, or None. `make_ordinary` makes a view an ordinary tensor.
    """
    global layout_of, unlink, INDEX
    layout_of, unlink, INDEX = layout, make_ordinary, index


def _name_types(custom, dtype, boolean, tuple plain):
    """Set the classes of tags with rules and of dtypes, the dtype bool, and the plain classes."""
    global CUSTOM, DTYPE, BOOL, PLAIN
    CUSTOM, DTYPE, BOOL, PLAIN = custom, dtype, boolean, plain


cdef class Template:
    """Graph of an operation without its operands: each step makes one node.

    Values are numbered: first the operands, then the results of the steps.
    """

    cdef tuple ops, dtypes, args, shapes, bounds
    cdef int *sources  # numbers of the operands of all steps, concatenated
    cdef int *counts  # number of operands of each step
    cdef bint *named  # whether the node of a step has an origin
    cdef int n_steps
    cdef tuple results  # numbers of values
    cdef tuple view_steps  # for each result: a ViewStep if it is a view, else None
    cdef object record  # class of the tuple to return; None for a single tensor
    cdef object kind  # class of the tensors

    def __dealloc__(self):
        PyMem_Free(self.sources)
        PyMem_Free(self.counts)
        PyMem_Free(self.named)

    cdef list instantiate(self, list operands, object code):
        """Make the nodes, and return all values."""
        cdef list values = list(operands)
        cdef tuple src
        cdef object origin = None
        cdef bint has_origin = False
        cdef Node node
        cdef int *source = self.sources
        cdef int step, i
        for step in range(self.n_steps):
            src = PyTuple_New(self.counts[step])
            for i in range(self.counts[step]):
                node = <Node> values[source[i]]
                Py_INCREF(node)
                PyTuple_SET_ITEM(src, i, node)
            source += self.counts[step]
            arg = <object> PyTuple_GET_ITEM(self.args, step)
            if type(arg) is Rule:
                arg = (<Rule> arg).mark(values)
            node = intern(
                <object> PyTuple_GET_ITEM(self.ops, step),
                <object> PyTuple_GET_ITEM(self.dtypes, step), src, arg)
            if node.cached_shape is None:
                node.cached_shape = <object> PyTuple_GET_ITEM(self.shapes, step)
            if node.cached_bounds is None:
                node.cached_bounds = <object> PyTuple_GET_ITEM(self.bounds, step)
            if self.named[step] and (node.origin is None or (<tuple> node.origin)[5] != epoch):
                if not has_origin:
                    origin, has_origin = here_of(get(KRT_SCOPE), code), True
                node.origin = origin
            values.append(node)
        return values

    cdef object result(self, list operands, object code, ArrayHandle source, object index):
        """Return the result of a call; None if Python code has to compute it.

        `source` is the first tensor of the call, and `index` is the index that the caller wrote.
        """
        cdef list found = [], values
        cdef Node below = <Node> source._uop
        cdef ArrayHandle root = source, view
        cdef tuple path = None, fixed = None
        cdef ViewStep step
        cdef int i
        if source._link is not None:
            if (<Link> source._link).node is not below or (<Link> source._link).root is None:
                return None
            root, path = (<Link> source._link).root, (<Link> source._link).path
            below, fixed = <Node> (<Link> source._link).below, (<Link> source._link).fixed
        values = self.instantiate(operands, code)
        for i in range(len(self.results)):
            node = <Node> values[self.results[i]]
            step = <ViewStep> PyTuple_GET_ITEM(self.view_steps, i)
            if step is None:
                found.append(made(self.kind, node, code))
                continue
            arguments = step.arguments
            if step.kind is INDEX:
                arguments = step.index_arguments(values, index, self.kind, code)
            view = shown(
                self.kind, node, code, root,
                (path[0] if step.joined else path, step.kind, arguments), below, step.layout)
            if step.tensors:
                (<Link> view._link).fixed = (fixed or ()) + tuple([
                    (arguments[0][i], values[n]) for i, n in step.tensors])
            else:
                (<Link> view._link).fixed = fixed
            found.append(view)
        if self.record is None:
            return found[0]
        return tuple(found) if self.record is tuple else self.record._make(found)


cdef class ViewStep:
    """Last step of the path of a view of the first operand, and the resulting layout."""

    cdef object kind, layout
    cdef tuple arguments  # for an index: its items
    cdef tuple tensors  # (position, number of the value) of each tensor among the items
    cdef bint joined  # whether this step also replaces the last step of the operand's path

    cdef tuple index_arguments(self, list values, object index, object kind, object code):
        """Return the arguments of an INDEX view: items, the index as written, and nodes."""
        cdef list items
        if not self.tensors:
            return self.arguments, index, ()
        items = list(self.arguments)
        for i, n in self.tensors:
            items[i] = made(kind, <Node> values[n], code)
        return tuple(items), index, tuple([values[n] for _, n in self.tensors])

    cdef bint equals(self, ViewStep other):
        return (self.kind == other.kind and self.arguments == other.arguments
                and self.tensors == other.tensors and self.layout == other.layout
                and self.joined == other.joined)


cdef bint verifies = False
cdef unsigned long n_uses = 0


def verify(bint value):
    global verifies
    verifies = value


cdef bint enabled = True


def enable(bint value):
    global enabled
    enabled = value


def count_uses():
    return n_uses


cdef object REFUSED = object()  # entry of a key that gets no template
cdef object MET_ONCE = object()  # entry of a key that was met once


cdef class Call(Recording):
    """A call from which a template may be made."""

    cdef Operation operation
    cdef tuple key
    cdef list operands, handles, given
    cdef tuple names  # names of the last arguments in `given`, passed by keyword
    cdef unsigned long before  # this thread's number of reads of values before the call

    cdef int record(self, object found) except -1:
        cdef dict known = self.operation.templates
        cdef Template template
        entry = known.get(self.key)
        self.unlink_from_temporaries(found)
        if isinstance(entry, Template):
            # Without `verifies`, another thread has made the template meanwhile.
            if verifies and not self.agrees(<Template> entry, found):
                raise errors.KernelrtError(
                    f"{self.operation.__qualname__}: the template and the code make different "
                    f"graphs for the key {self.key}")
        elif entry is None and self.operation.waits:
            self.note(known, MET_ONCE)
        elif entry is not REFUSED:
            template = None
            if reads() == self.before and self.is_fresh(found):
                if are_independent(self.operands):
                    template = template_of(found, found, self.operands, self)
                else:
                    template = self.separated(found)
            if template is not None and not self.agrees(template, found):
                template = None
            self.note(known, REFUSED if template is None else template)
            self.operation.refused = 0 if template is not None else self.operation.refused + 1
            if self.operation.refused >= MOST_REFUSED:
                self.operation.waits = True
        return 0

    cdef int note(self, dict known, object entry) except -1:
        if len(known) >= MOST_TEMPLATES:
            # If keys rarely repeat, make a template only at the second call with a key.
            self.operation.waits = self.operation.uses < MOST_TEMPLATES // 4
            self.operation.uses = 0
            known.clear()
        known[self.key] = entry
        return 0

    cdef bint agrees(self, Template template, object found) except -1:
        """Return whether a template makes the graphs and the view paths of a result."""
        cdef list results = results_of(found), values
        cdef dict numbers = {}
        cdef ViewStep one, two
        cdef int i
        values = template.instantiate(self.operands, self.operation.code)
        if len(template.results) != len(results) or not all(
                [values[n] is node for n, node in zip(template.results, nodes_of(found))]):
            return False
        for i in range(len(values)):
            numbers.setdefault(values[i], i)
        for i in range(len(results)):
            one = <ViewStep> template.view_steps[i]
            if (one is None) != ((<ArrayHandle> results[i])._link is None):
                return False
            if one is not None:
                two = view_step(<ArrayHandle> results[i], self.handles[0], numbers)
                if two is None or not one.equals(two):
                    return False
        return True

    cdef bint is_fresh(self, object found) except -1:
        """Return whether a result consists of new lazy tensors, not of operands."""
        cdef ArrayHandle tensor
        for result in results_of(found):
            if not isinstance(result, LazyHandle):
                return False
            tensor = <ArrayHandle> result
            if (tensor._leaf is not None or tensor._born is not None or tensor._grad is not None
                    or tensor.data != NULL or tensor._uop is None
                    or tensor._plain == records_gradients()
                    or (tensor._link is not None and not self.is_view(tensor))):
                return False
            for operand in self.handles:
                if operand is result:
                    return False
        return True

    cdef int unlink_from_temporaries(self, object found) except -1:
        """Make views of temporary tensors ordinary tensors: no other tensor shares the elements."""
        cdef list views = [t for t in results_of(found) if isinstance(t, LazyHandle)
                           and (<ArrayHandle> t)._link is not None]
        cdef list roots = [id((<Link> (<ArrayHandle> view)._link).root) for view in views]
        cdef set known = {id(t) for t in results_of(found)}
        cdef ArrayHandle root
        for handle in self.handles:
            known.add(id(handle))
            if (<ArrayHandle> handle)._link is not None:
                known.add(id((<Link> (<ArrayHandle> handle)._link).root))
        given = {id(handle) for handle in self.handles}
        for view in views:
            root = <ArrayHandle> (<Link> (<ArrayHandle> view)._link).root
            if (id(view) not in given and root.data == NULL and root._leaf is None
                    and roots.count(id(root)) == 1 and id(root) not in known):
                unlink(view)
        return 0

    cdef bint is_view(self, ArrayHandle view) except -1:
        """Return whether a view shows elements of the root of the first operand."""
        cdef ArrayHandle source = <ArrayHandle> self.handles[0]
        cdef Link link = <Link> view._link
        return (link.root is (source if source._link is None else (<Link> source._link).root)
                and link.plain == view._plain)

    cdef Template separated(self, object found):
        """Return a template of a call in which one operand is computed from another.

        A node of the graph could be equal to an operand by coincidence: exp(x) in exp(x) * y, if y
        is exp(x). So the code runs again, with a new node in place of each operand.
        """
        cdef list operands = []
        cdef dict stand_ins = {}
        cdef Node node
        for item in self.operands:
            node = <Node> item
            stand_ins[node] = intern(
                DETACH, node.dtype, (node,), CUSTOM(no_rule, (node,), (), object()))
            (<Node> stand_ins[node]).cached_shape = node.shape
            operands.append(stand_ins[node])
        roots = [(<ArrayHandle> handle).uop for handle in self.handles]
        tensors = {
            id(handle): bare(type(handle), <Node> root, self.operation.code)
            for handle, root in zip(self.handles, substitute(roots, stand_ins))
        }
        given = [replaced(value, tensors) for value in self.given]
        n = len(given) - len(self.names)
        try:
            again = self.operation.function(*given[:n], **dict(zip(self.names, given[n:])))
        except Exception:
            return None
        for tensor in results_of(again):
            if not isinstance(tensor, LazyHandle) or (<ArrayHandle> tensor)._uop is None:
                return None
        return template_of(found, again, operands, self)


cdef ViewStep view_step(ArrayHandle view, ArrayHandle source, dict numbers):
    """Return how a view shows elements of another tensor; None if it depends on more than values.

    `numbers` maps values to their numbers.
    """
    cdef Link link = <Link> view._link
    cdef Link whole = <Link> source._link
    cdef ViewStep step = ViewStep()
    cdef tuple arguments
    path = None if whole is None else whole.path
    step.joined = link.path[0] is not path
    if step.joined and (path is None or link.path[0] is not path[0]):
        return None
    step.kind, arguments = link.path[1:]
    step.tensors = ()
    if step.kind is INDEX:
        items, _, nodes = arguments
        tensors = [i for i in range(len(items)) if isinstance(items[i], LazyHandle)]
        if len(tensors) != len(nodes) or not all([node in numbers for node in nodes]):
            return None
        step.tensors = tuple([(i, numbers[node]) for i, node in zip(tensors, nodes)])
        arguments = tuple([None if isinstance(item, LazyHandle) else item for item in items])
    step.arguments = arguments
    step.layout = layout_of(view)
    return step if is_data(arguments) and step.layout is not None else None


cdef object replaced(object value, dict tensors):
    """Return an argument with its tensors replaced."""
    if isinstance(value, LazyHandle):
        return tensors[id(value)]
    if type(value) is tuple or type(value) is list:
        return type(value)([replaced(item, tensors) for item in value])
    return value


def no_rule(node, gradient, i):
    raise AssertionError("no gradient flows through the operands of a template")


cdef Template template_of(object found, object again, list operands, Call call):
    """Return a template of the graph of a result; None if the graph reads more than the operands.

    The graph is that of `again` over the nodes `operands`; the views are those of `found`.
    """
    cdef Template made_of = Template()
    cdef dict numbers = {}
    cdef list steps = [], args = [], views = [], roots = nodes_of(again)
    cdef Link link
    cdef Node node
    cdef int i, n = 0
    for i in range(len(operands)):
        numbers[operands[i]] = i
    order = ordered(roots, set(operands))
    for item in order:
        node = <Node> item
        if node in numbers:
            n += 1
            continue
        if node.arg is not None and isinstance(node.arg, Exporter) and (<Exporter> node.arg).constant:
            pass
        elif (PyTuple_GET_SIZE(node.src) == 0 and node.op not in LEAVES
                or not is_plain(node.shape) or not (is_data(node.arg) or is_rule(node.arg))):
            return None
        numbers[node] = len(operands) + len(steps)
        steps.append(node)
    if n != len(operands) or len(steps) > MOST_STEPS:
        return None
    made_of.n_steps = len(steps)
    n = sum([len((<Node> item).src) for item in steps])
    made_of.sources = <int *> PyMem_Malloc(max(n, 1) * sizeof(int))
    made_of.counts = <int *> PyMem_Malloc(max(len(steps), 1) * sizeof(int))
    made_of.named = <bint *> PyMem_Malloc(max(len(steps), 1) * sizeof(bint))
    if made_of.sources == NULL or made_of.counts == NULL or made_of.named == NULL:
        raise MemoryError("out of memory: cannot store the template of an operation")
    n = 0
    for i in range(len(steps)):
        node = <Node> steps[i]
        made_of.counts[i] = len(node.src)
        made_of.named[i] = node.origin is not None
        for below in node.src:
            made_of.sources[n] = numbers[below]
            n += 1
        args.append(Rule.of(node.arg, numbers) if isinstance(node.arg, CUSTOM) else node.arg)
    made_of.ops = tuple([node.op for node in steps])
    made_of.dtypes = tuple([node.dtype for node in steps])
    made_of.args = tuple(args)
    made_of.shapes = tuple([node.cached_shape for node in steps])
    made_of.bounds = tuple([bounds_of(node) for node in steps])
    made_of.results = tuple([numbers[root] for root in roots])
    for tensor, other in zip(results_of(found), results_of(again)):
        link = <Link> (<ArrayHandle> tensor)._link
        if link is None:
            views.append(None)
            continue
        if link.path[1] is INDEX and other is not tensor:
            twin = (<ArrayHandle> other)._link
            if twin is None or (<Link> twin).path[1] is not INDEX:
                return None
            for node, same in zip(link.path[2][2], (<Link> twin).path[2][2]):
                if same in numbers:
                    numbers[node] = numbers[same]
        step = view_step(<ArrayHandle> tensor, <ArrayHandle> call.handles[0], numbers)
        if step is None:
            return None
        views.append(step)
    made_of.view_steps = tuple(views)
    made_of.kind = type(results_of(found)[0])
    made_of.record = None if isinstance(found, LazyHandle) else type(found)
    return made_of


cdef tuple bounds_of(Node node):
    """Return the bounds of an integer node; they are fixed by the bounds of operands in the key."""
    if not node.dtype.is_int:
        return None
    node.bounds
    return node.cached_bounds


cdef class Rule:
    """Tag with a gradient rule that has numbers of values in place of nodes."""

    cdef object rule, arg
    cdef tuple inputs, parts

    @staticmethod
    cdef Rule of(object mark, dict numbers):
        cdef Rule rule = Rule()
        rule.rule, rule.arg = mark.rule, mark.arg
        rule.inputs = tuple([numbers[node] for node in mark.inputs])
        rule.parts = tuple([numbers[node] for node in mark.parts])
        return rule

    cdef object mark(self, list values):
        return CUSTOM(self.rule, tuple([values[n] for n in self.inputs]),
                      tuple([values[n] for n in self.parts]), self.arg)


cdef list ordered(list roots, set ends):
    """Return the nodes of graphs, each after its operands and the nodes of its tag."""
    cdef list order = [], stack = [(root, False) for root in reversed(roots)]
    cdef set seen = set()
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if node not in ends:
                arg = (<Node> node).arg
                if arg is not None and isinstance(arg, CUSTOM):
                    stack.extend([(below, False) for below in arg.inputs + arg.parts])
                stack.extend([(below, False) for below in reversed((<Node> node).src)])
    return order


cdef bint is_data(object arg) except -1:
    """Return whether an arg of a node refers to no node, and to no object that each call makes."""
    if arg is None or PyLong_CheckExact(arg) or isinstance(arg, PLAIN):
        return True
    if type(arg) is tuple:
        for item in <tuple> arg:
            if not PyLong_CheckExact(item) and not is_data(item):
                return False
        return True
    if type(arg) is frozenset or (
            isinstance(arg, tuple) and hasattr(arg, "_fields")):
        return all([is_data(item) for item in arg])
    if type(arg) is slice:
        return is_data(arg.start) and is_data(arg.stop) and is_data(arg.step)
    parameters = getattr(type(arg), "__dataclass_params__", None)
    if parameters is not None:  # without eq, instances compare by identity, not by fields
        return parameters.frozen and parameters.eq and all([
            is_data(getattr(arg, name)) for name in type(arg).__dataclass_fields__])
    return arg is Ellipsis


cdef bint is_rule(object arg) except -1:
    return (isinstance(arg, CUSTOM) and is_data(arg.arg) and type(arg.rule) is FunctionType
            and arg.rule.__closure__ is None)


cdef bint are_independent(list operands) except -1:
    """Return whether no operand is computed from another one, and each reads memory."""
    cdef set others = set(operands)
    cdef int least = min([(<Node> item).depth for item in operands])
    for item in operands:
        if not reads_data(<Node> item):
            return False
        if len(others) > 1 and reads_any(<Node> item, others, least):
            return False
    return True


cdef bint reads_data(Node root) except -1:
    """Return whether a graph reads memory."""
    cdef set seen = set()
    cdef list stack = [root]
    cdef Node node
    while stack:
        node = <Node> stack.pop()
        if node.op is BUFFER:
            return True
        if node not in seen:
            seen.add(node)
            stack.extend(node.src)
    return False


cdef bint reads_any(Node root, set others, int least) except -1:
    """Return whether a node is computed from one of `others`, all of depth `least` or more."""
    cdef set seen = set()
    cdef list stack = list(root.src)
    cdef Node node
    while stack:
        node = <Node> stack.pop()
        if node in others:
            return True
        if node.depth > least and node not in seen:
            seen.add(node)
            stack.extend(node.src)
    return False


cdef list results_of(object found):
    if isinstance(found, tuple) and (type(found) is tuple or hasattr(found, "_make")):
        return list(<tuple> found) or [None]
    return [found]


cdef list nodes_of(object found):
    return [(<ArrayHandle> tensor)._uop for tensor in results_of(found)]


# ---- keys


cdef bint describe(object value, list key, list operands, list handles) except -1:
    """Append to a key all properties of an argument that the graph of an operation depends on.

    Return False if the graph may depend on more.
    """
    cdef double exact
    cdef uint64_t bits
    if isinstance(value, LazyHandle):
        handles.append(value)
        return describe_tensor(<ArrayHandle> value, key, operands)
    kind = type(value)
    key.append(kind)
    if PyFloat_CheckExact(value):
        exact = PyFloat_AS_DOUBLE(value)  # use the bits: 0.0 == -0.0, and NaN != NaN
        memcpy(&bits, &exact, sizeof(bits))
        key.append(bits)
    elif (value is None or kind is bool or PyLong_CheckExact(value) or PyUnicode_CheckExact(value)
            or value is Ellipsis or isinstance(value, (type, DTYPE))):
        key.append(value)
    elif kind is tuple or kind is list:
        if len(value) > MOST_ITEMS:
            return False
        key.append(len(value))
        for item in value:
            if not describe(item, key, operands, handles):
                return False
    elif kind is slice:
        return (describe(value.start, key, operands, handles)
                and describe(value.stop, key, operands, handles)
                and describe(value.step, key, operands, handles))
    else:
        return False
    return True


cdef bint describe_tensor(ArrayHandle tensor, list key, list operands) except -1:
    cdef Node node
    cdef int n
    if tensor._uop is None and tensor._link is None:
        adopted(tensor)
    settle(tensor)
    node = node_of(tensor)
    if node is None:
        return False
    key.append(type(tensor))
    if tensor._link is not None:  # whether the result is a view depends on its layout
        layout = (<Link> tensor._link).layout
        if layout is None:
            layout = layout_of(tensor)
        if layout is None:
            return False
        key.append(layout)
        key.append((<Link> tensor._link).path[1])
    if records_gradients():
        known = lineage_of(node)
        key.append(known if known is True or known is False else type(known))
    n = MOST_TRANSPARENT
    return describe_node(node, key, operands, &n)


cdef bint describe_node(Node node, list key, list operands, int *left) except -1:
    cdef int n
    if node.shape is None or not is_plain(node.cached_shape):
        return False
    key.append(node.op)
    key.append(node.dtype)
    if node.op in TRANSPARENT or (node.op in LOGIC and node.dtype is BOOL):
        left[0] -= 1
        if left[0] < 0:
            return False
        key.append(node.arg)
        for below in node.src:
            if not describe_node(<Node> below, key, operands, left):
                return False
        return True
    if PyTuple_GET_SIZE(node.src) == 0 and node.op is not BUFFER:
        if node.op not in LEAVES:
            return False
        if node.op is CONST:
            return describe(node.arg, key, operands, [])
        key.append(node.arg)
        return True
    key.append(node.cached_shape)
    if node.op is DETACH:
        key.append(type(node.arg))
    if node.op is not BUFFER and node.dtype.is_int:
        key.append(node.bounds)  # they decide whether indices are checked
        key.append(node.exact)
    for n in range(len(operands)):
        if operands[n] is node:
            break
    else:
        n = len(operands)
        operands.append(node)
    key.append(n)
    return True


# ---- calls


cdef object look_up(Operation operation, PyObject **args, size_t n, PyObject *names):
    """Return the result of a call from its template, or a Recording to make a template, or None.

    None means that the call has, and gets, no template.
    """
    global n_uses
    cdef list key = [records_gradients()], operands = [], handles = []
    cdef size_t i, count = n + (0 if names == NULL else len(<tuple> names))
    cdef Moment begun
    cdef Call call
    if not enabled or tracing() or (debugging and debugs()):
        return None
    for i in range(count):
        if not describe(<object> args[i], key, operands, handles):
            return None
    if not operands:
        return None
    if names != NULL:
        key.append(<tuple> names)
    whole = tuple(key)
    entry = operation.templates.get(whole)
    if entry is REFUSED:
        return None
    if isinstance(entry, Template):
        n_uses += 1
        operation.uses += 1
    if isinstance(entry, Template) and not verifies:
        begun = now()
        found = (<Template> entry).result(
            operands, operation.code, handles[0],
            <object> args[1] if n > 1 and operation.code.co_name == "__getitem__" else NO_INDEX)
        return None if disturbed(begun) else found
    call = Call()
    call.operation, call.key, call.operands, call.handles = operation, whole, operands, handles
    call.given = [<object> args[i] for i in range(count)]
    call.names = () if names == NULL else <tuple> names
    call.before = reads()
    return call


use_templates(look_up)
