"""Finds the side effects of traced functions, and the state that they read."""

__all__: list[str] = []
