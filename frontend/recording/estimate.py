"""What a generated module would save a call, by the figures of benchmarks/README.md.

An estimate: those are of other shapes, on one H200 with cuDNN 9.19 (9.27 for overrides) and
frontend 1.32. tests/frontend/test_recording_report.py compares them with benchmarks/*.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SOURCE = "benchmarks/README.md: one H200, frontend 1.32, graphs of the same kind, not this one"


class Figures(NamedTuple):
    """Host µs of a call: the frontend's best path, and a launch record's.

    The record's column is "every address new", its slowest; of overrides the class that repeats.
    """

    benchmark: str
    frontend: float
    record: float

    @property
    def saved(self) -> float:
        """Host µs that a call would save."""
        return self.frontend - self.record


# Prefix of a tag → figures; the first that a graph has, in this order.
_BY_TAG = (
    ("SDPA_BWD", Figures("built_sdpa_backward", 19.78, 4.35)),
    ("SDPA_FP8_BWD", Figures("built_sdpa_backward", 19.78, 4.35)),
    ("SDPA_MXFP8_BWD", Figures("built_sdpa_backward", 19.78, 4.35)),
    ("SDPA", Figures("sdpa_dense", 9.77, 3.29)),
    ("CONV", Figures("built_conv_bias_relu", 11.05, 2.63)),
    ("MATMUL", Figures("matmul_bias_relu", 7.84, 2.27)),
    ("MOE", Figures("matmul_bias_relu", 7.84, 2.27)),
    ("RMS_NORM", Figures("built_rms_norm", 9.39, 2.03)),
    ("REDUCTION", Figures("built_reduction", 12.06, 2.39)),
    ("", Figures("layernorm", 8.46, 2.09)),
)
_POINTWISE = Figures("scale_by_value", 7.06, 2.27)
_RAGGED = Figures("sdpa_thd", 16.47, 4.68)
_OVERRIDDEN = Figures("overrides, product", 20.93, 2.57)
_OVERRIDDEN_ATTENTION = Figures("overrides, attention", 24.40, 2.40)


def find_figures(tags: Sequence[str], is_ragged: bool, has_overrides: bool) -> Figures:
    """Return the figures of the benchmark that is most like a graph."""
    is_attention = any(tag.startswith("SDPA") for tag in tags)
    if has_overrides:
        return _OVERRIDDEN_ATTENTION if is_attention else _OVERRIDDEN
    if is_attention and is_ragged and not any("BWD" in tag for tag in tags):
        return _RAGGED
    if tags and all(tag == "POINTWISE" for tag in tags):
        return _POINTWISE
    return next(
        figures
        for prefix, figures in _BY_TAG
        if any(tag.startswith(prefix) for tag in tags or [""])
    )
