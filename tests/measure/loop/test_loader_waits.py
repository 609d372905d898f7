"""Waits for data loaders, split: hand-computed, and by loaders whose slow part is known."""

import contextlib
import gc
import itertools
import multiprocessing
import pickle
import random
import time

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset, dataloader, get_worker_info
from torch.utils.data._utils import fetch, pin_memory, worker

from torchgauge.measure.loop.loader_waits import LoaderWaits, WaitTotals, worker_parts
from torchgauge.measure.loop.loader_worker import TimedIndex, pinning_loop

TORCH = [
    (dataloader.DataLoader, "__iter__"),
    (dataloader._BaseDataLoaderIter, "__next__"),
    (dataloader._BaseDataLoaderIter, "_next_index"),
    (dataloader._MultiProcessingDataLoaderIter, "_try_get_data"),
    (fetch._BaseDatasetFetcher, "collate_fn"),
    (pin_memory, "pin_memory"),
    (pin_memory, "_pin_memory_loop"),
    (worker, "_worker_loop"),
]


@pytest.fixture(autouse=True)
def torch_is_left_as_it_was():
    def state():
        return [vars(owner).get(name) for owner, name in TORCH]

    before = state()
    yield
    assert state() == before


class Numbers(Dataset):
    """Samples that tell who made them, after a wait."""

    def __init__(self, count=12, decode=0.0, wrong=None):
        self.count, self.decode, self.wrong = count, decode, wrong

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index == self.wrong:
            raise KeyError(f"sample {index}")
        time.sleep(self.decode)
        info = get_worker_info()
        drawn = random.random() + torch.rand(()).item()
        return torch.full((3,), float(index)), drawn, -1 if info is None else info.id


class Stream(IterableDataset):
    """Workers that end after unequal numbers of samples."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        info = get_worker_info()
        number = 0 if info is None else info.id
        return iter(
            [(torch.full((2,), float(index)), number) for index in range(self.count - number)]
        )


class Slow:
    """A collate function that takes a while."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, samples):
        time.sleep(self.seconds)
        return torch.stack([sample[0] for sample in samples])


def pairs(samples):
    return ("collated", samples)


def loop(loader, work=0.0, epochs=1):
    """Return the wait for a loader of which every batch counts, as steps of their own."""
    waits = LoaderWaits()
    with waits.watching():
        for _ in range(epochs):
            waits.begin()
            for _ in loader:
                time.sleep(work)
                waits.end()
                waits.begin()
            waits.end()
    (wait,) = waits.waits()
    return wait


def index(number=0, **times):
    made = TimedIndex(number)
    for name, value in times.items():
        setattr(made, name, value)
    return made


TIMES = {"task_start": 10, "collating": 30, "sent": 36, "arrived": 41}


@pytest.mark.parametrize(
    ("others", "began", "expected"),
    [
        # The loop asks at 5, the worker begins at 10.
        ({}, 5, (0, 5, 20, 6, 5, 0)),
        ({"first": True}, 5, (5, 0, 20, 6, 5, 0)),
        # Asked for in the middle of decoding, after the batch was sent, and long after.
        ({}, 22, (0, 0, 8, 6, 5, 0)),
        ({}, 39, (0, 0, 0, 0, 2, 0)),
        ({}, 44, (0, 0, 0, 0, 0, 0)),
        # Through the thread that pins memory.
        ({"received": 38, "pinned": 43, "arrived": 44}, 5, (0, 5, 20, 6, 2, 5)),
    ],
)
def test_the_parts_of_a_wait_are_what_was_under_way(others, began, expected):
    parts = worker_parts(index(**TIMES | others), began, 50, sampling=4)
    names = ("restart", "queued", "decode", "collate", "transfer", "pin")
    assert tuple(parts.get(name, 0) for name in names) == expected
    assert parts["sampler"] == 4
    totals = WaitTotals()
    totals.count(50 - began, parts)
    assert sum(totals.parts) == 50 - began  # with what is left: nothing is counted twice


def test_a_number_with_times_is_the_number():
    made = pickle.loads(pickle.dumps(index(7, task_start=1, collating=2, sent=3, idle=4, cpu=5)))
    assert made == 7
    assert hash(made) == hash(7)
    assert (made.task_start, made.collating, made.sent, made.idle, made.cpu) == (1, 2, 3, 4, 5)


def test_needed_workers_are_their_work_over_the_loop_s():
    totals = WaitTotals()
    totals.add_batch(0, index(task_start=0, collating=300, sent=400, cpu=100))
    totals.add_batch(1, index(task_start=50, collating=150, sent=250, cpu=100))
    totals.calls = 2
    totals.count(200, {"decode": 150})
    key = ("Numbers", 2, 2, False, False)
    wait = totals.record(key, starts=(1, 80), steps=2, duration=400)
    # 300 ns of work a batch, which the loop uses up in (400 − 200) / 2 ns.
    assert wait.needed == 3
    assert wait.needed_cores == pytest.approx(1.0)
    assert wait.parts.decode == pytest.approx(150e-9)
    assert wait.parts.other == pytest.approx(50e-9)
    assert wait.share == pytest.approx(0.5)
    assert [load.longest for load in wait.loads] == [pytest.approx(400e-9), pytest.approx(200e-9)]


@pytest.mark.parametrize(("decode", "collate"), [(0.004, 0.0), (0.0, 0.016)])
def test_without_workers_the_slow_part_is_named(decode, collate):
    loader = DataLoader(Numbers(12, decode), batch_size=4, collate_fn=Slow(collate))
    wait = loop(loader)
    slow, fast = wait.parts.decode, wait.parts.collate
    if collate:
        slow, fast = fast, slow
    assert slow >= 3 * 0.016
    assert slow > 2 * fast
    assert sum(wait.parts.by_name.values()) == pytest.approx(wait.time)
    assert (wait.calls, wait.loads, wait.behind, wait.starts) == (3, (), None, 1)
    assert wait.cpu < wait.time / 2  # it slept


@pytest.mark.parametrize("slow", ["decode", "collate", None])
def test_with_workers_the_slow_part_is_named(slow):
    decode, collate = 0.02 * (slow == "decode"), 0.04 * (slow == "collate")
    loader = DataLoader(Numbers(16, decode), batch_size=2, num_workers=2, collate_fn=Slow(collate))
    wait = loop(loader, work=0.03 * (slow is None))
    made = {"decode": wait.parts.decode, "collate": wait.parts.collate}
    assert sum(wait.parts.by_name.values()) == pytest.approx(wait.time)
    assert wait.calls == sum(load.batches for load in wait.loads) == 8
    work = {name: sum(getattr(load, name) for load in wait.loads) for name in made}
    if slow is None:
        assert wait.busy < 0.5
        assert sum(made.values()) < wait.duration / 4
    else:
        (other,) = made.keys() - {slow}
        assert work[slow] >= 8 * 0.04
        assert made[slow] > 2 * made[other]
        assert wait.busy > 0.5


class Late(Numbers):
    """The first sample is made once the second was."""

    def __init__(self):
        super().__init__(4)
        self.second = multiprocessing.Event()

    def __getitem__(self, index):
        if index == 1:
            self.second.set()
        elif index == 0:
            self.second.wait(20)
            time.sleep(0.1)
        return super().__getitem__(index)


def test_a_late_batch_that_later_ones_wait_for_is_out_of_order():
    wait = loop(DataLoader(Late(), num_workers=2, collate_fn=pairs))
    assert 0 < wait.behind < wait.time
    in_time = loop(DataLoader(Late(), num_workers=1, batch_size=2, sampler=[1, 0, 2, 3]))
    assert in_time.behind == 0


def test_an_epoch_begins_with_its_workers():
    wait = loop(DataLoader(Numbers(4), batch_size=2, num_workers=1, collate_fn=pairs), epochs=2)
    assert wait.starts == 2
    assert wait.parts.restart > wait.time / 2
    assert wait.start >= wait.parts.restart / 2
    kept = DataLoader(
        Numbers(4), batch_size=2, num_workers=1, collate_fn=pairs, persistent_workers=True
    )
    again = loop(kept, epochs=2)
    assert again.persistent
    assert again.starts == 2
    kept._iterator._shutdown_workers()


def test_workers_from_before_are_not_split():
    loader = DataLoader(
        Numbers(4), batch_size=2, num_workers=1, collate_fn=pairs, persistent_workers=True
    )
    list(loader)
    wait = loop(loader)
    assert wait.calls == 2
    assert wait.parts is wait.behind is wait.busy is wait.needed is None
    assert wait.time > 0
    loader._iterator._shutdown_workers()


def test_a_loader_in_a_dataset_counts_in_its_own_wait_alone():
    class Outer(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, number):
            return list(DataLoader(Numbers(3), collate_fn=pairs))

    wait = loop(DataLoader(Outer(), collate_fn=pairs))
    assert (wait.dataset, wait.calls) == ("Outer", 2)


class OneRound:
    """An event that is set once the pinning loop has handed on a batch."""

    def __init__(self):
        self.answers = itertools.chain([False, True, False], itertools.repeat(True))

    def is_set(self):
        return next(self.answers)


def test_pinning_has_a_time_of_its_own(monkeypatch):
    class Queue(list):
        def get(self, timeout):
            return self.pop(0)

        def put(self, item, timeout):
            self.append(item)

    batch = [torch.ones(2)]
    received, pinned = Queue([(index(3), batch)]), Queue()
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda _device: None)
    pinning_loop(received, pinned, 0, OneRound(), None)
    (number, result) = pinned[0]
    assert 0 < number.received <= number.pinned
    assert result is batch


CONFIGURATIONS = st.fixed_dictionaries({
    "workers": st.sampled_from([0, 0, 1, 2]),
    "kind": st.sampled_from(["map", "stream", "wrong"]),
    "batch_size": st.sampled_from([None, 1, 3]),
    "shuffle": st.booleans(),
    "drop_last": st.booleans(),
    "prefetch_factor": st.sampled_from([1, 2, 4]),
    "in_order": st.just(True),
    "persistent_workers": st.booleans(),
    "collate": st.sampled_from([None, pairs]),
    "method": st.sampled_from(["fork"]),
    "pin_memory": st.booleans(),
})  # fmt: skip


def batches(workers, kind, shuffle, collate, method, **others):
    """Return all that two epochs of a loader give, errors included."""
    torch.manual_seed(5)
    random.seed(5)
    dataset = Stream(7) if kind == "stream" else Numbers(7, wrong=6 if kind == "wrong" else None)
    if others["batch_size"] is None:
        del others["drop_last"]
    if kind == "stream":
        shuffle = None
    if kind == "wrong":  # the last one: torch waits 5 s for workers that have work at the end
        shuffle = False
    if not workers:
        for name in ("prefetch_factor", "persistent_workers"):
            del others[name]
    else:
        others["multiprocessing_context"] = method
    loader = DataLoader(dataset, num_workers=workers, shuffle=shuffle, collate_fn=collate, **others)
    given_batches = []
    for _ in range(2):
        try:
            given_batches += list(loader)
        except Exception as error:  # noqa: BLE001 - its type and text are compared
            given_batches.append((type(error), str(error)))
        gc.collect()  # else torch ends the iterator in the processes that the next one forks
    return given_batches, torch.rand(3), random.random()


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.filterwarnings("ignore")
def check_unchanged(configuration):
    expected = batches(**configuration)
    with LoaderWaits().watching():
        watched = batches(**configuration)
    assert same(expected, watched)


@given(CONFIGURATIONS.map(lambda configuration: configuration | {"workers": 0}))
@settings(max_examples=20, deadline=None, derandomize=True)
@pytest.mark.filterwarnings("ignore")
def test_batches_are_the_same_bits_without_workers(configuration):
    check_unchanged(configuration)


@pytest.mark.slow
@given(CONFIGURATIONS)
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@pytest.mark.filterwarnings("ignore")
def test_batches_order_and_errors_are_the_same_bits(configuration):
    check_unchanged(configuration)


@pytest.mark.slow
def test_spawned_workers_give_the_same_and_are_timed():
    def loader():
        return DataLoader(
            Numbers(6), 2, num_workers=1, collate_fn=pairs, multiprocessing_context="spawn"
        )

    waits = LoaderWaits()
    with waits.watching():
        waits.begin()
        torch.manual_seed(5)
        watched = list(loader())
        waits.end()
    torch.manual_seed(5)
    assert same(list(loader()), watched)
    (wait,) = waits.waits()
    assert wait.parts.restart > wait.time / 2
    assert sum(load.batches for load in wait.loads) == 3


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError])
def test_an_error_in_the_loop_leaves_torch_as_it_was(raised):
    with contextlib.suppress(raised), LoaderWaits().watching():
        for _ in DataLoader(Numbers(4), num_workers=1, collate_fn=pairs):
            raise raised
