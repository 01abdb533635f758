"""Detection of side effects of traced functions, and of the state that they read."""

__all__: list[str] = []
