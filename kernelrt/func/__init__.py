"""Functions of functions: derivatives of functions of tensors, of any order, over nested data.

The names and meanings are those of ``torch.func``. See docs/func.md.
"""

from kernelrt.func.jacobians import hessian, jacfwd, jacobian, jacrev
from kernelrt.func.mapping import vmap
from kernelrt.func.modules import functional_call, stack_module_state
from kernelrt.func.transforms import grad, grad_and_value, jvp, linearize, value_and_grad, vjp

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "linearize",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
]
