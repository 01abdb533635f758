"""Functions of functions: derivatives of functions of tensors, of any order, over nested data.

The names and meanings are those of ``torch.func``. See docs/func.md.
"""

from kernelrt.func.choices import cond, switch
from kernelrt.func.derivatives import grad, grad_and_value, jvp, linearize, value_and_grad, vjp
from kernelrt.func.jacobians import hessian, jacfwd, jacobian, jacrev
from kernelrt.func.loops import fori_loop, scan, while_loop
from kernelrt.func.mapping import vmap
from kernelrt.func.modules import functional_call, stack_module_state

__all__ = [
    "cond",
    "fori_loop",
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "linearize",
    "scan",
    "stack_module_state",
    "switch",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
