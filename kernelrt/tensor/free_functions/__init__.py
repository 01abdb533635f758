"""Functions of tensors that are no methods."""

__all__: list[str] = []
