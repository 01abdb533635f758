"""Rewrites the tensor graph before fusion."""

__all__: list[str] = []
