"""Decompositions of mathematical functions into elementary operations."""

__all__: list[str] = []
