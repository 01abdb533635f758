"""Functions of graph nodes, without tensors."""

__all__: list[str] = []
