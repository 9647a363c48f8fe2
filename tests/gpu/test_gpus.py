"""The GPU at hand: as the driver describes it, as cuDNN does, and as the table does."""

from __future__ import annotations

import json

import pytest

from cudnn_bindgen.frontend.planning.driver import read_here
from cudnn_bindgen.frontend.planning.gpus import load_table

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("frontend")]


def test_here_is_what_cudnn_says():
    import cudnn

    said = cudnn.create_device_properties(0).serialize()
    # Older ones say less: 9.19 has no memoryBusWidth.
    assert {**json.loads(read_here().text), **json.loads(said)} == json.loads(read_here().text)


def test_the_table_has_the_right_number_of_sms():
    here = read_here()
    rows = [row for row in load_table().gpus.values() if row.device == here.device_name]
    if not rows:
        pytest.skip(f"{here.device_name} is not in the table")
    assert (here.sm, here.multi_processor_count) in {(row.sm, row.sm_count) for row in rows}
