"""Optimizers, with PyTorch's names, formulas and defaults."""

import sys
from typing import TYPE_CHECKING, Any

from kernelrt.nn.optim.adam import Adam, AdamW
from kernelrt.nn.optim.optimizer import Optimizer
from kernelrt.nn.optim.sgd import SGD
from kernelrt.util import lazy_import
from kernelrt.util.unsupported_names import OPTIM, of_module

if TYPE_CHECKING:
    from kernelrt.nn.optim import lr_scheduler, swa_utils
    from kernelrt.nn.optim.adam_variants import Adamax, NAdam, RAdam
    from kernelrt.nn.optim.adaptive import Adadelta, Adagrad, RMSprop
    from kernelrt.nn.optim.layerwise import LAMB, Adafactor, Muon
    from kernelrt.nn.optim.lbfgs import LBFGS
    from kernelrt.nn.optim.signs import ASGD, Lion, Rprop

__all__ = [
    "ASGD",
    "LAMB",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "lr_scheduler",
    "swa_utils",
]

#: Module of each rarely used name, which is imported on first use.
_PLACES = {
    "adam_variants": ("Adamax", "NAdam", "RAdam"),
    "adaptive": ("Adadelta", "Adagrad", "RMSprop"),
    "layerwise": ("LAMB", "Adafactor", "Muon"),
    "lbfgs": ("LBFGS",),
    "signs": ("ASGD", "Lion", "Rprop"),
}
_LATER = {name: place for place, names in _PLACES.items() for name in names}

if not TYPE_CHECKING:  # type checkers would accept any name of a module with __getattr__
    _others = lazy_import.submodules(
        __name__, ("lr_scheduler", "swa_utils"), of_module(__name__, OPTIM, __all__)
    )

    def __getattr__(name: str) -> Any:
        place = _LATER.get(name)
        if place is None:
            return _others(name)
        lazy_import.load(f"{__name__}.{place}")
        found = globals()[name] = getattr(sys.modules[f"{__name__}.{place}"], name)
        return found
