import sys
from pathlib import Path

# tests/support is imported as `support`, from wherever pytest is started.
sys.path.insert(0, str(Path(__file__).parents[1]))
