"""Functions over graph nodes, without tensors."""

__all__: list[str] = []
