"""The folder of wheels for a machine without a network: what is in it, from a made index."""

import zipfile

from packaging.requirements import Requirement

import gpu_wheels

TARGET = gpu_wheels.environment("3.12", "x86_64")
INDEX = {
    "a": ("2.0", ["b>=1.5", "c; python_version < '3.12'", "d; extra == 'more'", "E_f"]),
    "b": ("1.6", []),
    "c": ("1.0", []),
    "d": ("1.0", ["b<1.6"]),
    "e-f": ("1.0", ["a"]),
}


def test_what_a_machine_has_is_read_from_each_form_of_list():
    table = "Package    Version   Editable project location\n--------- -------- ---\n"
    table += "typing_extensions 4.1.0\nmine 0.1 /home/me/mine\n"
    assert gpu_wheels.present(table) == {"typing-extensions": "4.1.0", "mine": "0.1"}
    frozen = "# editable\nnumpy==2.1.0\nmine @ file:///home/me/mine\n-e git+x#egg=y\n"
    assert gpu_wheels.present(frozen) == {"numpy": "2.1.0", "mine": ""}
    assert gpu_wheels.present("absl-py, torch 2.11.0,\nzipp.") == {
        "absl-py": "", "torch": "2.11.0", "zipp": "",
    }  # fmt: skip
    assert gpu_wheels.present("one two") == {"one": "", "two": ""}


def test_requirements_are_those_of_the_project():
    names = {requirement.name for requirement in gpu_wheels.required([], TARGET)}
    assert {"msgspec", "httptools", "rich-argparse", "numpy"} <= names
    assert "zeus" not in names
    assert "zeus" in {one.name for one in gpu_wheels.required(["energy"], TARGET)}
    every = {one.name for one in gpu_wheels.required(["all"], TARGET)}
    assert {"zeus", "memray", "onnx"} <= every  # memray by way of another extra
    assert "torchgauge" not in every


def folder_of(tmp_path, monkeypatch, *wanted, have=None):
    """Return the names and versions in the folder, downloaded from `INDEX`."""
    asked = []

    def download(requirement, target, folder):
        asked.append(requirement)
        one = Requirement(requirement)
        version, needs = INDEX[one.name]
        version = version if one.specifier.contains(version) else "1.5"
        path = folder / f"{one.name.replace('-', '_')}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            lines = ["Name: x", *(f"Requires-Dist: {need}" for need in needs)]
            wheel.writestr(f"x-{version}.dist-info/METADATA", "\n".join(lines))
        return path

    monkeypatch.setattr(gpu_wheels, "download", download)
    requirements = [Requirement(text) for text in wanted]
    made = list(gpu_wheels.downloaded(requirements, have or {}, TARGET, tmp_path))
    assert sorted(made) == sorted(tmp_path.iterdir())
    return asked, ["-".join(path.name.split("-")[:2]) for path in made]


def test_what_a_package_requires_comes_with_it_where_markers_hold(tmp_path, monkeypatch):
    asked, made = folder_of(tmp_path, monkeypatch, "a")
    assert made == ["a-2.0", "b-1.6", "e_f-1.0"]
    assert asked == ["a", "b>=1.5", "e-f"]


def test_extras_are_followed_and_versions_narrowed(tmp_path, monkeypatch):
    asked, made = folder_of(tmp_path, monkeypatch, "a[more]")
    assert made == ["a-2.0", "b-1.5", "d-1.0", "e_f-1.0"]
    assert asked[-1] in ("b<1.6,>=1.5", "b>=1.5,<1.6")
    (tmp_path / "later").mkdir()
    later = folder_of(tmp_path / "later", monkeypatch, "a", "a[more]")
    assert later[1] == made


def test_what_suffices_there_is_left_out_with_what_it_requires(tmp_path, monkeypatch):
    have = {"b": "1.5", "e-f": ""}
    (tmp_path / "enough").mkdir()
    assert folder_of(tmp_path / "enough", monkeypatch, "a", have=have)[1] == ["a-2.0"]
    (tmp_path / "older").mkdir()
    assert folder_of(tmp_path / "older", monkeypatch, "b>1.5", have=have)[1] == ["b-1.6"]
