"""Pickles that hold plain values are read; none that could run anything is run."""

import builtins
import collections
import copyreg
import fractions
import io
import os
import pickle
import struct

import pytest

from torchgauge import InputError
from torchgauge.readers.snapshot.snapshot import load_primitives

VALUES = {
    "numbers": [0, 1, -1, 255, 256, 70_000, -70_000, 2**31, 2**40, -(2**62), 2.5, True, None],
    "texts": ["", "é" * 300, "a" * 70_000, "a"],
    "bytes": [b"", b"x" * 300],
    "tuples": [(), (0,), (0, 0), (1, 2, 3), (1, 2, 3, 4), (2**40, None), (1.5, True, 7)],
    "set": {1, 2, "x"},
    "many": [{"name": str(number)} for number in range(300)],
}


@pytest.mark.parametrize("protocol", [4, 5])
def test_plain_values_are_what_python_reads(protocol):
    data = pickle.dumps(VALUES, protocol)
    assert load_primitives(data, "it") == VALUES


@pytest.mark.parametrize("protocol", [2, 3])
def test_so_are_those_of_older_protocols(protocol):
    values = {k: v for k, v in VALUES.items() if k not in ("set", "bytes")}
    assert load_primitives(pickle.dumps(values, protocol), "it") == values


def test_one_object_named_many_times_is_one():
    frame = {"line": 1}
    found = load_primitives(pickle.dumps([[frame] * 70_000, frame]), "it")
    assert found[0][0] is found[1]


class Runs:
    """Made of a function and its arguments when it is unpickled."""

    def __init__(self, function, *arguments):
        self.made_of = function, arguments

    def __reduce__(self):
        return self.made_of


HOSTILE = {
    "os.system": Runs(os.system, "touch it-ran"),
    "eval": Runs(builtins.eval, "__import__('os').mkdir('it-ran')"),
    "exec": Runs(builtins.exec, "import os; os.mkdir('it-ran')"),
    "mkdir": Runs(os.mkdir, "it-ran"),
    "getattr": Runs(builtins.getattr, "", "join"),
    "class": fractions.Fraction,
    "object": fractions.Fraction(1, 2),
    "ordered": collections.OrderedDict(a=1),
}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_run_code_is_refused_and_not_run(name, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = {"segments": [], "device_traces": [[HOSTILE[name]]]}
    with pytest.raises(InputError) as caught:
        load_primitives(pickle.dumps(content, protocol), "it")
    # Protocol 0 is refused before, as a form that torch never writes.
    assert caught.value.id == ("pickle-unsafe" if protocol > 1 else caught.value.id)
    assert caught.value.id in ("pickle-unsafe", "pickle-not-plain")
    assert list(tmp_path.iterdir()) == []


BY_HAND = {
    "GLOBAL and REDUCE": b"cos\nsystem\n(X\x0c\0\0\0touch it-rantR.",
    "INST": b"(X\x0c\0\0\0touch it-ranios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nX\x0c\0\0\0touch it-rano.",
    "STACK_GLOBAL": b"\x8c\x02os\x8c\x06system\x93\x8c\x0ctouch it-ran\x85R.",
    "BUILD": b"}}b.",
    "PERSID": b"Pabc\n.",
    "BINPERSID": b"K\x01Q.",
    "NEWOBJ": b"cos\nsystem\n)\x81.",
    "EXT1": b"\x82\x01)R.",
    "after the value": b"]q\0cos\nsystem\n.",
}


@pytest.mark.parametrize("name", BY_HAND)
def test_every_operation_that_calls_or_names_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        load_primitives(b"\x80\x02" + BY_HAND[name], "it")
    assert caught.value.id == "pickle-unsafe"
    assert list(tmp_path.iterdir()) == []


def test_a_registered_extension_that_python_has_loaded_before_is_refused(tmp_path, monkeypatch):
    # Python's own unpickler takes it from its cache, without asking find_class.
    monkeypatch.chdir(tmp_path)
    copyreg.add_extension("os", "mkdir", 241)
    try:
        data = b"\x80\x02\x82\xf1X\x06\0\0\0it-ran\x85R."
        pickle.Unpickler(io.BytesIO(b"\x80\x02\x82\xf1.")).load()
        with pytest.raises(InputError) as caught:
            load_primitives(data, "it")
    finally:
        copyreg.remove_extension("os", "mkdir", 241)
    assert caught.value.id == "pickle-unsafe"
    assert list(tmp_path.iterdir()) == []


def test_code_hidden_in_a_text_is_text():
    text = "cos\nsystem\n(X\x0ctR."
    assert load_primitives(pickle.dumps([text, text.encode()]), "it") == [text, text.encode()]


def doubled(levels):
    """A tuple of itself twice, and so on: its hash would take 2 to the power of `levels`."""
    return b"\x80\x02)" + b"2\x86" * levels


@pytest.mark.parametrize(
    ("data", "id"),
    [
        (b"", "pickle-damaged"),
        (b"\x80\x04", "pickle-damaged"),
        (pickle.dumps(VALUES)[:-1], "pickle-damaged"),
        (b"\x80\x02.", "pickle-damaged"),
        (b"\x80\x02h\x05.", "pickle-damaged"),
        (b"\x80\x02}]K\x01s.", "pickle-damaged"),
        (b"\x80\x09].", "pickle-damaged"),
        (b"\x80\x02X\xff\xff\xff\x7fabc.", "pickle-damaged"),
        (b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b".", "pickle-damaged"),
        (b"\x80\x04\x8d" + struct.pack("<Q", 2**64 - 1) + b"].", "pickle-damaged"),
        (b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"].", "pickle-damaged"),
        # 32 GiB for a list of remembered objects, of a file of ten bytes.
        (b"\x80\x02]r\xff\xff\xff\x7f.", "pickle-not-plain"),
        (b"\x80\x02}" + doubled(60)[2:] + b"Ns.", "pickle-not-plain"),
        (b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns.", "pickle-not-plain"),
        (b"\x80\x02\x8b\xff\xff\xff\x00" + b"\x7f" * 0xFFFFFF + b".", "pickle-not-plain"),
        (b"\x80\x04\x96" + struct.pack("<Q", 2**40) + b".", "pickle-not-plain"),
        (b"not a pickle", "pickle-damaged"),
        (b"\x7fELF", "pickle-damaged"),
    ],
)
def test_what_is_damaged_or_would_take_all_memory_is_named(data, id):
    with pytest.raises(InputError) as caught:
        load_primitives(data, "it")
    assert caught.value.id == id
    assert "it" in str(caught.value)


def test_nesting_takes_no_stack():
    found = load_primitives(b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".", "it")
    assert len(found) == 1
