"""Records in which every text is another's: tokens to look for, and what may come with them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

from torchgauge.errors import TorchgaugeError
from torchgauge.records.record import Record
from torchgauge.records.serving.level import ServerUse
from torchgauge.records.serving.requests import Requests

Place = tuple[str, str]
"""A struct's name and its field's."""

# Of these a record is refused, or another one read, where they hold what they cannot.
DATES = {"created"}
# Words of ours, by which a record's parts find each other: of them no other text is read.
WORDS = {("Best", "metric"), ("TrainingMemory", "optimizer"), ("TrainingMemory", "optimizers")}
WORDS |= {("OptimizerMemory", "at_peak"), ("TrainingPhase", "name")}
# What is there together with other parts of its record, or not at all.
UNFIT = {("Count", "training"), ("TrendSeries", "correction"), ("DeviceMemory", "peak")}
UNFIT |= {("RankTrace", "memory"), ("Profile", "training"), ("Profile", "serving")}
UNFIT |= {("Forwards", "device")}
# Columns are as long as the others, and shares rise.
UNFIT |= {("Requests", name) for name in Requests.__struct_fields__}
UNFIT |= {("ServerUse", name) for name in ServerUse.__struct_fields__}
UNFIT |= {("Distribution", "percentiles"), ("ServiceTimes", "batches"), ("Level", "fates")}
UNFIT |= {("ServiceTimes", "order")}
# The only node of a tree has no parent, and is the first.
PLACES = {"parent": -1, "node": 0, "cell": 0}
_NUMBERS = itertools.count()


def poisoned(record: Record, write: Callable[[Place, str], str]) -> Record:
    """Return the record with `write(place, text)` in place of every text that may be any.

    A text that is there twice gets the same text again: names refer to each other.
    """
    plain = msgspec.to_builtins(record)
    schema = {name: value for name, value in plain.items() if name == "schema"}
    found = _written(plain, inspect.type_info(type(record)), (type(record).__name__, ""), write)
    return msgspec.convert(found | schema, type(record))


def places(kind: type[Record]) -> set[Place]:
    """Return every field of a kind of record, and of what it is made of, that may hold any text."""
    found: set[Place] = set()
    _collect(inspect.type_info(kind), (kind.__name__, ""), found, set())
    return found


def tokens() -> Callable[[Place, str], str]:
    """Return what gives each text a word of its own, the same one again where it recurs."""
    numbers: dict[str, int] = {}
    following = itertools.count(101)

    def token(place: Place, text: str) -> str:
        if not text or place[1] in DATES or place in WORDS:
            return text
        if text not in numbers:
            numbers[text] = next(following)
        return f"w{numbers[text]}w"

    return token


def _written(value: Any, kind: Any, place: Place, write: Callable[[Place, str], str]) -> Any:
    if value is None:
        return None
    if isinstance(kind, inspect.StrType):
        return write(place, value)
    if isinstance(kind, inspect.StructType):
        if kind.array_like:
            return [
                _written(one, field.type, (kind.cls.__name__, field.encode_name), write)
                for one, field in zip(value, kind.fields, strict=False)
            ]
        fields = {field.encode_name: field.type for field in kind.fields}
        name = kind.cls.__name__
        return {
            key: _written(one, fields[key], (name, key), write) if key in fields else one
            for key, one in value.items()
        }
    if isinstance(kind, inspect.DictType):
        return {
            _written(key, kind.key_type, place, write): _written(one, kind.value_type, place, write)
            for key, one in value.items()
        }
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        return [_written(one, kind.item_type, place, write) for one in value]
    if isinstance(kind, inspect.TupleType):
        return [
            _written(one, of, place, write) for one, of in zip(value, kind.item_types, strict=True)
        ]
    if isinstance(kind, inspect.UnionType):
        return _written(value, _chosen(value, kind), place, write)
    return value


def _chosen(value: Any, kind: inspect.UnionType) -> Any:
    """Return the type of a union that a plain value is of."""
    several = (inspect.VarTupleType, inspect.TupleType, inspect.ListType)
    fitting = {
        str: (inspect.StrType, inspect.LiteralType),
        dict: (inspect.StructType, inspect.DictType),
        list: several,
        tuple: several,
    }.get(type(value), ())
    return next((one for one in kind.types if isinstance(one, fitting)), inspect.AnyType())


def _parts(kind: Any) -> Iterator[Any]:
    if isinstance(kind, inspect.DictType):
        yield from (kind.key_type, kind.value_type)
    elif isinstance(kind, inspect.VarTupleType | inspect.ListType):
        yield kind.item_type
    elif isinstance(kind, inspect.TupleType):
        yield from kind.item_types
    elif isinstance(kind, inspect.UnionType):
        yield from kind.types


def _collect(kind: Any, place: Place, found: set[Place], seen: set[type]) -> None:
    if isinstance(kind, inspect.StrType):
        found.add(place)
    elif isinstance(kind, inspect.StructType):
        if kind.cls not in seen:
            seen.add(kind.cls)
            for field in kind.fields:
                _collect(field.type, (kind.cls.__name__, field.encode_name), found, seen)
    else:
        for part in _parts(kind):
            _collect(part, place, found, seen)


def filled(record: Record) -> Record:
    """Return the record with something wherever it had nothing, as far as it stays one."""
    kind = inspect.type_info(type(record))
    plain = msgspec.to_builtins(record)
    for _ in range(8):  # what is put in has parts of its own
        added = False
        for holder, key, made in list(_gaps(plain, kind)):
            before = dict(holder)
            holder[key] = made
            try:
                msgspec.convert(plain, type(record))
                added = True
            except (msgspec.ValidationError, TorchgaugeError):
                holder.clear()
                holder.update(before)
        if not added:
            break
    return msgspec.convert(plain, type(record))


def _gaps(value: Any, kind: Any) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Yield the empty fields of a plain record: who has it, its name, and what could be there."""
    if isinstance(kind, inspect.UnionType):
        kind = _chosen(value, kind)
    if isinstance(kind, inspect.StructType):
        yield from _gaps_of_struct(value, kind)
    elif isinstance(kind, inspect.DictType):
        for one in value.values():
            yield from _gaps(one, kind.value_type)
    elif isinstance(kind, inspect.VarTupleType | inspect.ListType):
        for one in value:
            yield from _gaps(one, kind.item_type)


def _gaps_of_struct(value: Any, kind: Any) -> Iterator[tuple[dict[str, Any], str, Any]]:
    for field in () if kind.array_like else kind.fields:
        one = value.get(field.encode_name)
        if one not in (None, "", (), {}):
            yield from _gaps(one, field.type)
        elif (kind.cls.__name__, field.encode_name) not in UNFIT:
            made = _made(field.type)
            if made not in (None, True):  # flags stay: they say what kind of record it is
                yield value, field.encode_name, made


def _made(kind: Any) -> Any:
    """Return the least plain value of a type that is not nothing."""
    if isinstance(kind, inspect.UnionType):
        return next((made for one in kind.types if (made := _made(one)) is not None), None)
    if isinstance(kind, inspect.LiteralType):
        return next((value for value in kind.values if value), None)
    if isinstance(kind, inspect.StructType):
        required = [field for field in kind.fields if field.required]
        return {
            field.encode_name: PLACES.get(field.encode_name, _made(field.type))
            for field in required or kind.fields
        }
    if isinstance(kind, inspect.DictType):
        return {_made(kind.key_type): _made(kind.value_type)}
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        return [_made(kind.item_type)]
    if isinstance(kind, inspect.TupleType):
        return [_made(item_type) for item_type in kind.item_types]
    simple = {
        inspect.StrType: f"text {next(_NUMBERS)}",
        inspect.IntType: 1,
        inspect.FloatType: 1.0,
        inspect.BoolType: True,
    }
    return simple.get(type(kind))
