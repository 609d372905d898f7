"""What git says, asked of real repositories."""

import subprocess

import pytest

from torchgauge.history.retention import BRANCH_VARIABLES, git_facts, location, make_folder
from torchgauge.records.run import Facts


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for name in BRANCH_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    git(tmp_path, "init", "-q", "-b", "trunk")
    (tmp_path / "a.txt").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "First words\n\nand more")
    return tmp_path


def git(folder, *arguments):
    names = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", folder, *names, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_clean_commit(repository):
    commit = git(repository, "rev-parse", "HEAD")
    (repository / "untracked").touch()
    folder = repository / "deeper"
    folder.mkdir()
    said = Facts(commit=commit, branch="trunk", dirty=False, message="First words")
    assert git_facts(folder) == said


def test_changed_files_are_said(repository):
    (repository / "a.txt").write_text("2")
    assert git_facts(repository).dirty is True


def test_a_commit_without_a_branch(repository, monkeypatch):
    git(repository, "checkout", "-q", "--detach")
    assert git_facts(repository).branch == ""
    monkeypatch.setenv("GITHUB_REF_NAME", "feature")
    assert git_facts(repository).branch == "feature"


def test_outside_of_a_repository_nothing_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_REF_NAME", "feature")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_facts(tmp_path) == Facts()
    monkeypatch.setenv("PATH", "")
    assert git_facts(tmp_path) == Facts()


def test_the_store_is_in_the_project_and_not_in_git(repository, monkeypatch):
    monkeypatch.delenv("TORCHGAUGE_STORE", raising=False)
    folder = repository / "src" / "deep"
    folder.mkdir(parents=True)
    file = repository / ".torchgauge" / "history.db"
    assert location(start=folder) == str(file)
    make_folder(file)
    file.touch()
    assert git(repository, "status", "--porcelain") == ""
    (folder / ".torchgauge").mkdir()  # nearer than .git
    assert location(start=folder) == str(folder / ".torchgauge" / "history.db")


def test_what_is_told_goes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_STORE", "of the variable")
    assert location(start=tmp_path) == "of the variable"
    assert location("told", start=tmp_path) == "told"
    monkeypatch.delenv("TORCHGAUGE_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert location(start=tmp_path) == str(tmp_path / "data" / "torchgauge" / "history.db")
