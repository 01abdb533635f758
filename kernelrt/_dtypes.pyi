"""Dtypes by PyTorch's alias names, some of which are Python builtins."""

# ruff: noqa: A001
from typing import Final

from kernelrt.dtype import DType

__all__ = ["bool", "double", "float", "half", "int", "long", "short"]

bool: Final[DType]
double: Final[DType]
float: Final[DType]
half: Final[DType]
int: Final[DType]
long: Final[DType]
short: Final[DType]
