"""Reverse-mode differentiation: derivative rules, tags, hooks and gradient state."""

__all__: list[str] = []
