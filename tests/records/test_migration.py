"""Files of older schemas: every field that was renamed since is read under its name of today.

`tests/data/records` holds the same record of every kind as it was written by each schema.
"""

import json

import msgspec
import pytest
from msgspec import inspect
from tests.support.paths import ROOT

import torchgauge as tg
from torchgauge.errors import RecordError
from torchgauge.records import codec
from torchgauge.records.migration import RENAMED_FIELDS

RECORDS = ROOT / "tests" / "data" / "records"
OLD = sorted(RECORDS.glob("*-1.json"))
LATEST = {schema.removeprefix("torchgauge.").partition("/")[0]: schema for schema in codec.KINDS}


def kind_of(path):
    return path.stem.rpartition("-")[0]


def written_today(path):
    """Return the same record as the current schema writes it."""
    kind, _, number = LATEST[kind_of(path)].removeprefix("torchgauge.").partition("/")
    return codec.load(RECORDS / f"{kind}-{number}.json")


def structs(value):
    """Yield every record in a record."""
    if isinstance(value, msgspec.Struct):
        yield value
        value = tuple(getattr(value, name) for name in value.__struct_fields__)
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        for part in value:
            yield from structs(part)


def types(kind, known):
    """Return every type of a kind of record, and of what it is made of."""
    if isinstance(kind, inspect.StructType) and kind.cls not in known:
        known.add(kind.cls)
        for field in kind.fields:
            types(field.type, known)
    elif isinstance(kind, inspect.VarTupleType):
        types(kind.item_type, known)
    elif isinstance(kind, inspect.DictType):
        types(kind.value_type, known)
    elif isinstance(kind, inspect.UnionType | inspect.TupleType):
        for part in kind.types if isinstance(kind, inspect.UnionType) else kind.item_types:
            types(part, known)
    return known


def test_there_is_an_old_file_of_every_kind():
    assert {kind_of(path) for path in OLD} == LATEST.keys()


@pytest.mark.parametrize("path", OLD, ids=kind_of)
def test_an_old_file_is_the_record_that_is_written_today(path):
    record, expected = codec.load(path), written_today(path)
    for name in expected.__struct_fields__:
        assert getattr(record, name) == getattr(expected, name), name
    assert record == expected
    assert record.schema == LATEST[kind_of(path)]
    assert codec.encode(record) == codec.encode(expected)


@pytest.mark.parametrize("path", OLD, ids=kind_of)
def test_an_old_file_is_shown_as_the_one_of_today(path):
    assert str(tg.load(path)) == str(written_today(path))


def test_every_renamed_field_has_a_value_of_its_own_in_an_old_file():
    seen = set()
    for path in OLD:
        for struct in structs(codec.load(path)):
            fields = {field.name: field for field in msgspec.structs.fields(type(struct))}
            for name in RENAMED_FIELDS.get(type(struct), {}).values():
                if getattr(struct, name) != fields[name].default:
                    seen.add((type(struct), name))
    renamed = {(kind, new) for kind, names in RENAMED_FIELDS.items() for new in names.values()}
    assert seen == renamed


def test_old_names_are_gone_and_new_ones_are_fields():
    for kind, names in RENAMED_FIELDS.items():
        fields = set(kind.__struct_fields__)
        assert set(names.values()) <= fields, kind
        assert not fields & names.keys(), kind


def test_every_schema_that_holds_a_renamed_field_has_a_number_of_its_own():
    holding = {
        schema
        for schema, kind in codec.KINDS.items()
        if types(inspect.type_info(kind), set()) & RENAMED_FIELDS.keys()
    }
    younger = {"torchgauge.generation/1", "torchgauge.training/1"}  # than the renaming
    assert {schema for schema in codec.KINDS if not schema.endswith("/1")} == holding - younger


def old(kind):
    return json.loads((RECORDS / f"{kind}-1.json").read_bytes())


def decoded(content):
    return codec.decode(json.dumps(content).encode())


def test_keys_that_users_chose_stay_as_they_are():
    settings = {old: "1" for names in RENAMED_FIELDS.values() for old in names}
    snapshot = decoded(old("snapshot") | {"settings": settings})
    assert snapshot.settings == settings
    sweep = decoded(old("sweep") | {"axes": {name: ["1"] for name in settings}})
    assert sweep.axes.keys() == settings.keys()


def test_a_record_within_another_is_of_todays_schema_too():
    verdict = codec.load(RECORDS / "verdict-1.json")
    assert verdict.comparison.schema == LATEST["comparison"]
    assert verdict.comparison.remainder == 0.125


@pytest.mark.parametrize("kind", LATEST)
def test_a_newer_file_is_refused_by_both_versions(kind):
    number = int(LATEST[kind].partition("/")[2])
    newer = f"torchgauge.{kind}/{number + 1}"
    content = json.loads((RECORDS / f"{kind}-{number}.json").read_bytes()) | {"schema": newer}
    with pytest.raises(RecordError, match=f"schema {newer}; .* reads {LATEST[kind]}") as caught:
        decoded(content)
    assert caught.value.id == "record-newer"


@pytest.mark.parametrize("number", ["0", "02", "²", "9" * 5000])
def test_a_number_that_no_schema_ever_had_is_not_read_as_an_old_one(number):
    with pytest.raises(RecordError):
        decoded(old("profile") | {"schema": f"torchgauge.profile/{number}"})


@pytest.mark.parametrize(
    ("kind", "break_it", "field"),
    [
        ("verdict", lambda content: content.update(guilty=[1]), "regressed_layers"),
        ("verdict", lambda content: content.update(guilty={"a": []}), "regressed_layers"),
        ("profile", lambda content: content.update(tree=[]), "tree"),
        ("profile", lambda content: content["tree"]["rows"].append(None), "tree.rows"),
        ("profile", lambda content: content["tree"].update(rows={"unsaid": 1}), "tree.rows"),
        ("profile", lambda content: content["tree"]["rows"][0].update(unsaid=2**64), "calls_with"),
        ("trend", lambda content: content["series"][0]["changes"][0].update(at=99), "likeliest"),
        ("snapshot", lambda content: content["devices"][0].pop("alive"), "alive"),
    ],
)
def test_an_old_file_that_is_damaged_says_where(kind, break_it, field):
    content = old(kind)
    break_it(content)
    with pytest.raises(RecordError, match=f"torchgauge.{kind}/1") as caught:
        decoded(content)
    assert caught.value.id == "record-invalid"
    assert field in caught.value.cause


def test_an_old_file_of_a_hundred_thousand_brackets_is_named():
    brackets = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(RecordError):
        codec.decode(b'{"schema": "torchgauge.profile/1", "tree": ' + brackets + b"}")


def test_a_gate_judges_against_an_old_baseline():
    today = tg.load(RECORDS / "profile-2.json")
    old, new = (
        tg.gate(baseline, today, metrics=["latency", "flops"], thresholds=["p99:1s"])
        for baseline in (RECORDS / "profile-1.json", today)
    )
    assert {ruling.metric for ruling in old.rulings} == {"latency", "flops", "p99"}
    assert old.rulings == new.rulings
    assert old.comparison.layers == new.comparison.layers
    assert old.comparison.remainder == new.comparison.remainder
