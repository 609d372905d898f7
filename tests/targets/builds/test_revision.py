"""Git revisions in work trees of their own: real repositories, made here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchgauge.errors import InputError
from torchgauge.targets.builds.home import foreign_module
from torchgauge.targets.builds.revision import checked_out, with_environment


def git(folder, *arguments):
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository whose first commit ("old") and current tree differ; we are in its root."""
    root = tmp_path / "project"
    (root / "package").mkdir(parents=True)
    (root / "model.py").write_text("VALUE = 'old'\n")
    (root / "package" / "__init__.py").write_text("")
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "old")
    git(root, "tag", "old")
    (root / "model.py").write_text("VALUE = 'new'\n")
    (root / "added.py").write_text("")
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "new")
    monkeypatch.chdir(root)
    return root


def trees(root):
    return git(root, "worktree", "list").splitlines()


def test_a_revision_is_there_for_the_block_and_gone_after(repository):
    with checked_out("old") as revision:
        assert (revision.tree / "model.py").read_text() == "VALUE = 'old'\n"
        assert revision.commit == git(repository, "rev-parse", "old")
        assert len(trees(repository)) == 2
        assert revision.notes == ()
    assert len(trees(repository)) == 1
    assert not revision.tree.parent.exists()
    assert (repository / "model.py").read_text() == "VALUE = 'new'\n"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_it_is_gone_whatever_happens(repository, error):
    with pytest.raises(error), checked_out("old"):
        raise error
    assert len(trees(repository)) == 1


def test_paths_lead_into_the_work_tree(repository, monkeypatch, tmp_path):
    packages = repository / ".venv" / "lib" / "python3.11" / "site-packages"
    elsewhere = tmp_path / "elsewhere"
    entries = [str(repository), str(packages), str(elsewhere), "", str(repository / "src")]
    monkeypatch.setattr(sys, "path", entries)
    monkeypatch.chdir(repository / "package")
    with checked_out("old") as revision:
        tree = revision.tree
        assert revision.home.path == (
            str(tree), str(packages), str(elsewhere), str(tree / "package"), str(tree / "src"),
        )  # fmt: skip
        assert revision.home.folder == str(tree / "package")
        assert revision.home.foreign == str(repository)


def test_torchgauge_and_the_environment_stay_though_they_are_in_the_repository(
    repository, monkeypatch
):
    monkeypatch.setattr(sys, "prefix", str(repository / "env"))
    monkeypatch.setattr("torchgauge.targets.builds.revision.PACKAGE", repository / "tools" / "it")
    with checked_out("old") as revision:
        for stays in (repository / "env" / "lib", repository / "tools"):
            assert revision.inside(str(stays)) == str(stays)


def test_targets_lead_into_the_work_tree(repository, tmp_path):
    weights = repository / "weights.pt"
    weights.write_text("untracked")
    with checked_out("old") as revision:
        tree = revision.tree
        assert revision.target("model.py:make") == f"{tree}/model.py:make"
        assert revision.target(f"{repository}/model.py:make") == f"{tree}/model.py:make"
        assert revision.target("package.module:make") == "package.module:make"
        assert revision.target("torchvision:resnet18") == "torchvision:resnet18"
        assert revision.target("package") == str(tree / "package")
        # Weights that git does not keep are the same on both sides.
        assert revision.file("weights.pt") == str(weights)
        with pytest.raises(InputError) as caught:
            revision.target("added.py:make")
    assert caught.value.id == "base-absent"


def test_the_repository_is_that_of_the_targets_file(repository, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with checked_out("old", f"{repository}/model.py:make") as revision:
        assert revision.target("project/model.py:make") == f"{revision.tree}/model.py:make"
        assert revision.home.folder == str(tmp_path)


def test_what_was_not_committed_is_said(repository):
    (repository / "model.py").write_text("VALUE = 'uncommitted'\n")
    with checked_out("old") as revision:
        (note,) = revision.notes
    assert "uncommitted" in note


def test_missing_submodules_and_lfs_files_are_said(repository, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    (other / "file").write_text("x")
    git(other, "add", "-A")
    git(other, "commit", "--quiet", "-m", "x")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "sub")
    (repository / ".gitattributes").write_text("*.bin filter=lfs\n")
    (repository / "w.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    git(repository, "-c", "filter.lfs.clean=cat", "add", "-A")
    git(repository, "commit", "--quiet", "-m", "more")
    with checked_out("HEAD") as revision:
        notes = " ".join(revision.notes)
    assert "sub" in notes
    assert "w.bin" in notes


def test_a_hook_of_the_repository_is_not_run(repository):
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    with checked_out("old") as revision:
        assert not (revision.tree / "ran").exists()


def test_inside_a_hook_git_speaks_of_another_index(repository, monkeypatch):
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / ".git" / "index"))
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    with checked_out("old"):
        pass
    monkeypatch.delenv("GIT_INDEX_FILE")
    monkeypatch.delenv("GIT_DIR")
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize("ref", ["nowhere", "--help", "old..main"])
def test_an_unknown_revision_is_said(repository, ref):
    with pytest.raises(InputError) as caught, checked_out(ref):
        pass
    assert caught.value.id == "ref-unknown"


def test_a_shallow_clone_is_told_what_to_fetch(repository, tmp_path, monkeypatch):
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", "shallow")
    monkeypatch.chdir(tmp_path / "shallow")
    with pytest.raises(InputError) as caught, checked_out("old"):
        pass
    assert "git fetch --depth=1 origin old" in caught.value.remedy


def test_no_repository_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught, checked_out("main"):
        pass
    assert caught.value.id == "not-a-repository"


def test_no_git_is_said(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError) as caught, checked_out("old"):
        pass
    assert caught.value.id == "git-missing"


def test_a_folder_that_the_revision_lacks_is_said(repository, monkeypatch):
    (repository / "later").mkdir()
    monkeypatch.chdir(repository / "later")
    with pytest.raises(InputError) as caught, checked_out("old"):
        pass
    assert caught.value.id == "base-absent"
    assert len(trees(repository)) == 1


@pytest.mark.thorough
def test_a_module_of_the_other_folder_is_found(tmp_path, monkeypatch):
    import types

    def module(name, file):
        made = types.ModuleType(name)
        made.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, made)

    module("mine", tmp_path / "lib" / "site-packages" / "mine.py")
    module("torchgauge.x", tmp_path / "x.py")
    assert foreign_module(tmp_path) is None
    module("theirs", tmp_path / "src" / "theirs.py")
    assert foreign_module(tmp_path) == ("theirs", str(tmp_path / "src" / "theirs.py"))


@pytest.mark.thorough
def test_a_check_out_within_the_project_is_not_the_other_build(repository, monkeypatch):
    import types

    inner = repository / "tmp"
    inner.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(inner))
    with checked_out("old") as revision:
        assert revision.tree.is_relative_to(repository)
        made = types.ModuleType("based")
        made.__file__ = str(revision.tree / "model.py")
        monkeypatch.setitem(sys.modules, "based", made)
        assert foreign_module(Path(revision.home.foreign)) is None
        assert foreign_module(revision.tree) == ("based", made.__file__)


def test_an_environment_that_is_not_described_cannot_be_built(repository):
    with pytest.raises(InputError) as caught, checked_out("old") as revision:
        with_environment(revision)
    assert caught.value.id == "base-env-empty"


@pytest.mark.slow
def test_an_environment_of_the_revisions_own(repository):
    """Nothing is fetched: the requirement lies in the tree itself."""
    (repository / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='gated', py_modules=['model'], version='1')\n"
    )
    (repository / "requirements.txt").write_text("# nothing\n")
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "-m", "packaged")
    with checked_out("HEAD") as revision:
        built = with_environment(revision)
        assert built.home.path[0] == str(built.packages)
        assert (built.packages / "model.py").read_text() == "VALUE = 'new'\n"
        (revision.tree / "requirements.txt").write_text("no such requirement at all\n")
        with pytest.raises(InputError) as caught:
            with_environment(revision)
    assert caught.value.id == "base-env-failed"
    assert "no such requirement" in caught.value.cause
    assert os.fspath(built.packages).startswith(str(revision.tree.parent))
