"""The run of a history that a gate is against: the newest earlier one of the same work."""

from __future__ import annotations

import dataclasses
from typing import Self

from torchgauge.errors import InputError, option_invalid
from torchgauge.history.content import entry
from torchgauge.history.retention import location
from torchgauge.history.store import Selection, Store
from torchgauge.records.profile import Profile
from torchgauge.records.run import Facts, Run

# Runs whose times may be compared are equal in these, as a series of `history trend` is.
SAME_WORK = ("workload", "machine", "torch")


@dataclasses.dataclass(frozen=True)
class HistoryBaseline:
    """Which run of the history at `store`: one whose uuid begins with `uuid`, or the newest.

    The newest is of the current run's target, before it, of `branch` and with `labels`. One of the
    same inputs, settings, machine and torch is preferred; where there is none, the comparison says
    what differs.
    """

    store: str
    uuid: str = ""
    branch: str | None = None
    labels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parsed(cls, choice: str, store: str | None = None) -> Self:
        """Return what is meant by nothing, a uuid's beginning, or K=V,K=V.

        The key `branch` is the run's branch, every other one a label of it.
        Raises InputError `option-invalid`, `store-url`.
        """
        place = location(store)
        if choice and "=" not in choice:
            return cls(place, uuid=choice)
        facts = [part.partition("=") for part in choice.split(",") if part]
        if not all(key and value for key, _, value in facts):
            raise option_invalid(
                f"'history:{choice}' chooses no run of the history.",
                "Write history, history:UUID, history:branch=main or history:LABEL=VALUE.",
            )
        values = {key: value for key, _, value in facts}
        branch = values.pop("branch", None)
        return cls(place, branch=branch, labels=tuple(values.items()))

    def check(self, target: str) -> None:
        """Raise what `profile` would for a run of `target`, before minutes are spent on one."""
        with Store.open(self.store, create=False) as store:
            self._runs(store, target)

    def profile(self, current: Profile) -> tuple[str, Profile]:
        """Return what the run is called, and its record.

        Raises InputError `run-unknown`, `run-ambiguous`, `baseline-missing`; RecordError,
        StoreError.
        """
        own = entry(current, Facts()).run
        with Store.open(self.store, create=False) as store:
            earlier = self._runs(store, own.target, before=own.created)
            comparable = [run for run in earlier if _work(run) == _work(own)]
            run = (comparable or earlier)[-1]
            return f"run {run.uuid[:8]} of the history", store.profile(run.uuid)

    def _runs(self, store: Store, target: str, before: str | None = None) -> list[Run]:
        """Return the runs that are meant, oldest first; never none."""
        if self.uuid:
            return [store.find(self.uuid)]
        chosen = store.runs(Selection(branch=self.branch, labels=self.labels))
        of_target = [run for run in chosen if run.target == target]
        earlier = [run for run in of_target if before is None or run.created < before]
        if earlier:
            return earlier
        adjective = "earlier " if of_target else ""
        targets = sorted({run.target for run in chosen})
        raise InputError(
            f"The history has no {adjective}run of {target}{self._condition} to gate against.",
            id="baseline-missing",
            cause=f"'{store.display_name}' holds "
            + (f"such runs of {', '.join(targets[:3])}." if targets else "no such run at all."),
            remedy="Add one with `torchgauge history add profile.json`, or name one of\n"
            "`torchgauge history list` as --baseline history:UUID.",
        )

    @property
    def _condition(self) -> str:
        facts = [("branch", self.branch)] if self.branch is not None else []
        named = ", ".join(f"{key}={value}" for key, value in (*facts, *self.labels))
        return f" with {named}" if named else ""


def _work(run: Run) -> tuple[str, ...]:
    return tuple(getattr(run, name) for name in SAME_WORK)
