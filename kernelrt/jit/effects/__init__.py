"""What a traced function reads and changes beside its arguments and results."""

__all__: list[str] = []
