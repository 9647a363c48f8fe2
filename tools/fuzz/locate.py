"""Makes this checkout importable to the scripts beside it: the package and the test modules."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT / "tests", ROOT / "src"):
    sys.path.insert(0, str(folder))
