"""Functions of tensors that are not methods."""

__all__: list[str] = []
