"""Tracing, vmap, loop bodies and calls of user functions."""

__all__: list[str] = []
