"""The table of GPUs and what `--for` takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from support.documents import TESTS

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.frontend.planning import gpus
from cudnn_bindgen.frontend.planning.device_properties import read_properties
from cudnn_bindgen.frontend.planning.gpus import (
    Field,
    Gpu,
    device_properties,
    find_gpus,
    load_table,
)

H200 = TESTS / "data" / "plans" / "device_properties_h200.json"
TABLE = load_table()


def find(*wanted: str) -> list[Gpu]:
    return list(find_gpus(wanted))


def names(*wanted: str) -> list[str]:
    return [gpu.name for gpu in find(*wanted)]


def changed(tmp_path: Path, **fields: Any) -> Path:
    document = json.loads(H200.read_text()) | fields
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({k: v for k, v in document.items() if v is not None}))
    return path


def test_the_table_gives_what_a_real_card_says() -> None:
    real = json.loads(H200.read_text())
    ours = json.loads(device_properties("h200"))
    assert list(ours) == list(real)
    assert ours == real | {"pciDeviceId": 0, "cudaDeviceId": 0, "driverVer": 13000}


@pytest.mark.parametrize("name", TABLE.gpus)
def test_each_row_is_whole(name: str) -> None:
    row = TABLE.gpus[name]
    assert set(row.sources.split()) <= TABLE.sources.keys()
    assert row.sources
    assert set(row.unsure) <= set(get_args(Field))
    # All that is read of the driver's text is NVIDIA's own name.
    assert row.device == "Orin" or row.device.startswith("NVIDIA ")
    assert 2**31 < row.memory < 2**39
    assert 4 <= row.sm_count <= 256
    assert 500 < row.clock < 3000
    [gpu] = find(name)
    assert (gpu.name, gpu.sm, gpu.sm_count) == (name, row.sm, row.sm_count)
    properties = json.loads(gpu.properties)
    assert properties["deviceVer"] == 10 * row.sm
    assert properties["deviceName"] == row.device
    assert properties["multiProcessorCount"] == row.sm_count


def test_all_architectures_that_cudnn_supports_are_there() -> None:
    expected = {80, 86, 87, 89, 90, 100, 103, 110, 120, 121}
    assert {int(sm) for sm in TABLE.architectures} == expected
    assert {row.sm for row in TABLE.gpus.values()} == expected
    shared = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227}
    for sm, architecture in TABLE.architectures.items():
        assert architecture.shared_memory_optin == 1024 * shared.get(int(sm), 99)


@pytest.mark.parametrize(
    ("name", "sm", "sm_count"),
    [
        *(("a100", 80, 108), ("a30", 80, 56), ("a10g", 86, 80), ("l4", 89, 58), ("l40s", 89, 142)),
        *(("h100", 90, 132), ("h100-pcie", 90, 114), ("h20", 90, 78), ("gh200", 90, 132)),
        *(("b200", 100, 148), ("gb200", 100, 152), ("b300", 103, 148), ("gb300", 103, 152)),
        *(("rtx3090", 86, 82), ("rtx4090", 89, 128), ("rtx5090", 120, 170)),
        *(("rtx-pro-6000", 120, 188), ("thor", 110, 20), ("dgx-spark", 121, 48)),
        *(("a100-mig-3g.40gb", 80, 42), ("h100-mig-3g.40gb", 90, 60)),
        ("h100-mig-7g.80gb", 90, 132),
    ],
)
def test_the_number_of_sms(name: str, sm: int, sm_count: int) -> None:
    [gpu] = find(name)
    assert (gpu.sm, gpu.sm_count) == (sm, sm_count)


def test_a_slice_is_named_by_its_parent_and_is_no_larger() -> None:
    parents = {row.device: row for row in TABLE.gpus.values()}
    slices = [row for row in TABLE.gpus.values() if " MIG " in row.device]
    assert len(slices) > 20
    for row in slices:
        parent = parents[row.device.partition(" MIG ")[0]]
        assert row.sm == parent.sm
        for field in ("sm_count", "bus", "l2"):
            assert getattr(row, field) <= getattr(parent, field)
        # nvidia-smi says a little more than the driver.
        assert row.memory < 1.02 * parent.memory


@pytest.mark.parametrize("spelling", ["RTX5090", "rtx-5090", "Rtx_5090", "RTX 5090"])
def test_case_and_separators_do_not_matter(spelling: str) -> None:
    assert names(spelling) == ["rtx5090"]
    assert device_properties(spelling) == device_properties("rtx5090")


def test_no_two_names_are_spelt_alike() -> None:
    every = [*TABLE.gpus, *TABLE.aliases]
    assert len({gpus._plain(name) for name in every}) == len(every)
    assert set(TABLE.aliases.values()) <= TABLE.gpus.keys()


def test_lists_keep_their_order() -> None:
    assert names("b200, h100,,rtx5090", "a100") == ["b200", "h100", "rtx5090", "a100-sxm-80gb"]


def test_gpus_that_take_the_same_plan_are_merged() -> None:
    [gpu] = find("h200,H100,gh200,h100", "h200")
    assert (gpu.name, gpu.merged) == ("h200", ("h100", "gh200"))
    assert gpu.properties == device_properties("h200")


def test_this_is_the_gpu_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    here = read_properties(H200)
    monkeypatch.setattr(gpus, "read_here", lambda: here)
    [gpu, other] = find("this,b200,THIS,h200")
    assert (gpu.name, gpu.merged, gpu.properties) == ("this", ("h200",), here.text)
    assert [other] == find("b200")


@pytest.mark.parametrize("spelling", ["sm_90:114", "sm90:114", "SM_90:114"])
def test_an_sm_and_a_number_mean_the_first_gpu_that_has_them(spelling: str) -> None:
    assert find(spelling) == find("h100-pcie")
    assert names("sm_90:132", "sm_120:188") == ["h100", "rtx-pro-6000"]


def test_another_number_gets_the_typical_numbers_of_the_sm() -> None:
    [gpu] = find("sm_90:100")
    assert (gpu.name, gpu.sm, gpu.sm_count) == ("sm_90:100", 90, 100)
    changes = {"multiProcessorCount": 100, "deviceName": "sm_90:100"}
    assert json.loads(gpu.properties) == json.loads(device_properties("h100")) | changes


def test_a_file_of_properties(tmp_path: Path) -> None:
    path = changed(tmp_path, multiProcessorCount=77)
    [gpu] = find(str(path))
    assert (gpu.name, gpu.sm, gpu.sm_count) == (str(path), 90, 77)
    assert json.loads(gpu.properties) == json.loads(path.read_text())
    [whole] = find(str(H200))
    assert whole.properties == H200.read_text()


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ("h10", "got h10; did you mean h100"),
        ("rtx590", "got rtx590; did you mean rtx5090"),
        ("a100-mig-3g.41gb", "did you mean a100-mig-3g.40gb"),
        ("mi300x-of-someone", "got mi300x-of-someone (cudnn-bindgen gpus lists all names"),
        ("sm_75:40", "expected an SM of 80, 86, 87, 89, 90, 100, 103, 110, 120, 121, got 75"),
        ("sm_90:0", "expected 1 to 1000 SMs, got 0"),
        ("sm_90:1001", "expected 1 to 1000 SMs, got 1001"),
        ("sm_90", "expected the name of a GPU, got sm_90"),
        (" , ", "expected the name of a GPU, got none"),
    ],
)
def test_what_is_not_known_is_one_line(wanted: str, problem: str) -> None:
    with pytest.raises(PlanError) as raised:
        find_gpus(["b200", wanted] if wanted.strip(" ,") else [wanted])
    assert problem in str(raised.value)
    assert str(raised.value).startswith("--for: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"warpSize": None}, '$: expected a field "warpSize", got none'),
        ({"warp": 32}, '$: expected no field but those that are known, got "warp"'),
        ({"warpSize": "32"}, "$.warpSize: expected int, got str"),
        ({"multiProcessorCount": 0}, "$.multiProcessorCount: expected int >= 1"),
        ({"maxGridSize": [1, 2]}, "$.maxGridSize: expected array of length 3, got 2"),
        ({"maxGridSize": [1, 2, 0.5]}, "$.maxGridSize[2]: expected int, got float"),
        ({"deviceVer": 905}, "$.deviceVer: expected int that's a multiple of 10"),
        ({"totalGlobalMem": 2**64}, "$.totalGlobalMem: expected int <= 9223372036854775807"),
        ({"deviceName": ""}, "$.deviceName: expected str of length >= 1"),
    ],
)
def test_a_file_that_is_none_names_the_place(
    fields: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    path = changed(tmp_path, **fields)
    with pytest.raises(PlanError) as raised:
        find_gpus([f"h100,{path}"])
    assert str(raised.value).startswith(f"{path}: {problem}")
    assert "cudnn-bindgen gpus --here" in str(raised.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"warpSize": 32')
    with pytest.raises(PlanError, match="expected device properties, got broken JSON"):
        find_gpus([str(broken)])
    broken.write_text("[]")
    with pytest.raises(PlanError, match=r"\$: expected object, got array"):
        find_gpus([str(broken)])
    with pytest.raises(FileNotFoundError):
        find_gpus([str(tmp_path / "absent.json")])
