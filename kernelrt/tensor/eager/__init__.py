"""Eager execution: plan cache, interpreter, assignment and shared memory."""

__all__: list[str] = []
