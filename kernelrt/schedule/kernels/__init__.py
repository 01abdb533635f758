"""Kernel ASTs of fused groups, in canonical form."""

__all__: list[str] = []
