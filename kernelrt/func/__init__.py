"""Function transforms: derivatives of any order, vmap, loops and branches, over pytrees.

Names and meanings follow ``torch.func`` and, for loops and branches, ``jax.lax``. See docs/func.md
and docs/loops.md.
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
