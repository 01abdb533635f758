"""Memory of a schedule: dependencies, order, arena and verification."""

__all__: list[str] = []
