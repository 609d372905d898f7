import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import records
from tests.support.paths import ROOT

from torchgauge.errors import InputError, RecordError
from torchgauge.records import codec
from torchgauge.records.doctor import Diagnosis
from torchgauge.records.latency.latency import LatencyRun
from torchgauge.records.record import Interval
from torchgauge.records.work.size import Size


def test_a_record_comes_back_equal(tmp_path):
    profile = records.profile()
    assert codec.load(profile.save(tmp_path / "run.json")) == profile


def test_a_diagnosis_comes_back_too():
    diagnosis = Diagnosis(environment=records.environment(), fingerprint="f", checks=())
    assert codec.decode(codec.encode(diagnosis)) == diagnosis
    with pytest.raises(RecordError) as caught:
        codec.decode(b'{"schema": "torchgauge.diagnosis/99"}')
    assert caught.value.id == "record-newer"


def test_the_file_is_json_that_others_can_read(tmp_path):
    content = json.loads(records.profile().save(tmp_path / "run.json").read_text())
    assert content["schema"] == "torchgauge.profile/1"
    assert content["latency"]["median"] == 0.010
    assert content["memory"]["timeline"] == [[0, 600, []], [10, 1000, []]]
    assert content["latency"]["percentile_intervals"]["p99"] is None


def test_unknown_parts_stay_unknown():
    profile = records.profile(size=None, latency=None, throughput=None, memory=None, system=None)
    again = codec.decode(codec.encode(profile))
    assert again.latency is None
    assert again.summary()["latency_p50_ms"] is None


@pytest.mark.parametrize(
    ("data", "id"),
    [
        (b"", "record-unreadable"),
        (b"{", "record-unreadable"),
        (b"\xff\xfe", "record-unreadable"),
        (b"[]", "record-foreign"),
        (b"{}", "record-foreign"),
        (b'{"schema": 3}', "record-foreign"),
        (b'{"schema": "other/1"}', "record-foreign"),
        (b'{"traceEvents": []}', "record-foreign"),
        (b'{"schema": "torchgauge.profile/999"}', "record-newer"),
        (b'{"schema": "torchgauge.profile/1"}', "record-invalid"),
    ],
)
def test_what_is_no_record_is_named(data, id):
    with pytest.raises(RecordError) as caught:
        codec.decode(data)
    assert caught.value.id == id


def test_a_file_of_a_hundred_thousand_brackets_is_named():
    data = b'{"schema": "torchgauge.profile/1", "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(RecordError) as caught:
        codec.decode(data)
    assert caught.value.id == "record-unreadable"


@pytest.mark.parametrize("schema", codec.KINDS)
def test_a_newer_record_names_both_versions(schema):
    with pytest.raises(RecordError, match=rf"schema {schema}9; .* reads {schema}\.") as caught:
        codec.decode(json.dumps({"schema": f"{schema}9"}).encode())
    assert caught.value.id == "record-newer"


@pytest.mark.parametrize("number", ["02", "²", "9" * 5000])
def test_a_number_that_no_schema_ever_had_is_not_read(number):
    with pytest.raises(RecordError):
        codec.decode(json.dumps({"schema": f"torchgauge.profile/{number}"}).encode())


@pytest.mark.parametrize("schema", codec.KINDS)
def test_a_saved_file_of_every_kind_is_read(schema):
    """The files are as the first version of each schema wrote them."""
    name = schema.removeprefix("torchgauge.").replace("/", "-")
    data = (ROOT / "tests" / "data" / "records" / f"{name}.json").read_bytes()
    record = codec.decode(data)
    assert record.schema == schema
    assert codec.decode(codec.encode(record)) == record


def test_a_hand_edited_field_is_named():
    content = json.loads(codec.encode(records.profile()))
    content["latency"]["median"] = "fast"
    with pytest.raises(RecordError) as caught:
        codec.decode(json.dumps(content).encode())
    assert "$.latency.median" in caught.value.cause


def test_every_truncation_is_an_error_of_ours():
    data = codec.encode(records.profile()).rstrip()
    for end in range(0, len(data), 97):
        with pytest.raises(RecordError):
            codec.decode(data[:end])


def test_a_missing_file_is_an_error_of_ours(tmp_path):
    with pytest.raises(InputError) as caught:
        codec.load(tmp_path / "nowhere.json")
    assert caught.value.id == "file-missing"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 10**400])
def test_numbers_that_are_none_are_refused_at_construction(value):
    with pytest.raises(RecordError, match="NaN or an infinity"):
        Interval(low=0.0, high=value)
    with pytest.raises(RecordError, match=r"LatencyRun\.samples"):
        LatencyRun(
            samples=(1.0, value),
            warmup=0,
            steady=True,
            first_call=1.0,
            median=1.0,
            interval=None,
            autocorrelation=1.0,
            stop="precision reached",
        )


def test_records_cannot_be_changed():
    with pytest.raises(AttributeError):
        records.profile().size.parameters = 1


@given(st.binary(max_size=200))
def test_any_bytes_give_a_record_or_our_error(data):
    with pytest.raises(RecordError):
        codec.decode(data)


@given(
    parameters=st.integers(0, 10**15), trainable=st.integers(0, 10**15), text=st.text(max_size=20)
)
def test_sizes_survive_the_round_trip(parameters, trainable, text):
    size = Size(
        parameters=parameters,
        trainable=trainable,
        buffers=0,
        parameter_bytes=4 * parameters,
        buffer_bytes=0,
        by_dtype={},
        disk_source=text,
    )
    profile = records.profile(size=size)
    assert codec.decode(codec.encode(profile)).size == size


def test_the_json_schema_names_every_part():
    schema = codec.json_schema()
    fields = schema["$defs"]["Profile"]["properties"]
    assert set(fields) == set(msgspec.structs.asdict(records.profile()))


def test_the_summary_has_units_in_its_keys():
    row = records.profile().summary()
    assert row["latency_p50_ms"] == pytest.approx(10.0)
    assert row["latency_median_low_ms"] == pytest.approx(9.9)
    assert row["memory_peak_bytes"] == 1_000
    assert row["throughput_images_per_s"] == 200.0
    assert row["warnings"] == "drift"


def test_memory_parts_add_up_to_the_peak():
    memory = records.memory()
    assert sum(memory.parts.values()) == memory.peak
    assert memory.rss_gap == 2_000
