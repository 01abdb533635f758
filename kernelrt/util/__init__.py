"""Helpers of all floors: lazy imports, switches in the environment, hook handles, llvmlite."""
