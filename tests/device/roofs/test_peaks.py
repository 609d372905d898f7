import pytest

from torchgauge.device.roofs import peaks
from torchgauge.errors import InputError

EVERY = [device.name for device in peaks._table().devices]


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("H100-PCIe", "NVIDIA H100 PCIe"),
        ("NVIDIA H100 NVL", "NVIDIA H100 NVL"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("b200", "NVIDIA B200"),
        ("a100", "NVIDIA A100-SXM4-80GB"),
        ("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("l4", "NVIDIA L4"),
        ("L40S", "NVIDIA L40S"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("mi300x", "AMD Instinct MI300X"),
        ("AMD Instinct MI250X", "AMD Instinct MI250X"),
        ("Tesla T4", "Tesla T4"),
        ("v100", "Tesla V100-SXM2-32GB"),
        ("Tesla V100-PCIE-16GB", "Tesla V100-PCIE-16GB"),
    ],
)
def test_a_device_is_found_by_the_name_that_it_reports_and_a_short_one(name, device):
    assert peaks.find(name).device == device


@pytest.mark.parametrize(
    ("name", "suggested"), [("h10", "h100"), ("a10", "a100"), ("RTX 4080", "4090"), ("l40", "l40s")]
)
def test_an_unknown_device_is_an_error_with_suggestions(name, suggested):
    with pytest.raises(InputError) as caught:
        peaks.find(name)
    assert caught.value.id == "device-unknown"
    assert suggested in caught.value.remedy + caught.value.cause


@pytest.mark.parametrize("name", ["", "NVIDIA", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "gpu"])
def test_what_is_no_device_of_the_table(name):
    with pytest.raises(InputError):
        peaks.find(name)


@pytest.mark.parametrize("name", EVERY)
def test_every_figure_has_its_document(name):
    roofs = peaks.find(name)
    assert roofs.device == name
    assert roofs.source == "datasheet"
    figures = {*roofs.peaks, "bandwidth", "memory"}
    assert figures <= roofs.sources.keys()
    assert all(text.startswith(("NVIDIA, ", "AMD, ")) for text in roofs.sources.values())
    assert (roofs.last_level_cache is not None) == ("last_level_cache" in roofs.sources)


@pytest.mark.parametrize("name", EVERY)
def test_narrower_numbers_are_never_slower(name):
    found = peaks.find(name).peaks
    order = ["float64", "float32", "tf32", "float16", "float8"]
    rates = [found[dtype] for dtype in order if dtype in found]
    assert rates == sorted(rates)
    assert found.get("bfloat16", found["float16"]) == found["float16"]
    assert 1e12 <= found["float32"] <= 200e12
    assert 1e11 <= peaks.find(name).memory_bandwidth <= 1e13


def test_dense_not_sparse():
    # The datasheets print 1,979 with sparsity (H100, bfloat16), 242 (L4), 733 (L40S).
    assert peaks.find("h100").peak("bfloat16") == 989.5e12
    assert peaks.find("h100").peak("float8_e4m3fn") == 1979e12
    assert peaks.find("l4").peak("float16") == 121e12
    assert peaks.find("l40s").peak("bfloat16") == 362.05e12
    assert peaks.find("a100").peak("float32", tf32=True) == 156e12
    assert peaks.find("a100").peak("float32") == 19.5e12
    assert peaks.find("v100").peak("bfloat16") is None


def test_figures_that_documents_disagree_on():
    # T4: the datasheet prints 300 GB/s, the whitepaper 320, which its 256 bits at 10 Gb/s are.
    assert peaks.find("t4").memory_bandwidth == 256 / 8 * 10e9
    assert "whitepaper" in peaks.find("t4").sources["bandwidth"]
    # An H200 has the whole die's L2, an H100 ten twelfths of it; an H100 NVL's is not known.
    whole = peaks.find("h200").last_level_cache
    assert whole == 60 * 2**20
    assert peaks.find("h100").last_level_cache == whole * 10 // 12
    assert peaks.find("h100-nvl").last_level_cache is None


def test_documents_can_be_found():
    without = {key for key, text in peaks._table().documents.items() if "https://" not in text}
    links = {f"{name}-nvlink" for name in ("a100", "h100", "h200", "blackwell")} | {"mi300x-links"}
    links |= {"dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200-network"}
    assert without - links == {"dgx-b200", "mi250x", "cdna2", "v100-whitepaper"}


def test_names_lead_back_to_devices():
    assert sorted(peaks.find(name).device for name in peaks.names()) == sorted(EVERY)
