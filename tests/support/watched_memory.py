"""Tests that watch the memory of a loop, without what pytest and other tests hold."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

from torchgauge.measure.loop import loop_memory
from torchgauge.measure.work.internals import storage_key


def run_alone(monkeypatch, item):
    """Have a test run on a thread of its own, where no tensors but its own are found.

    A peak has all that is alive. Holders are sought in what functions that run refer to, and in
    the program's modules: pytest's functions hold every test, and to look through them takes
    seconds a step.
    """
    gc.collect()
    tensors, held, kind = loop_memory.held_tensors, loop_memory.held, loop_memory._kind
    test, file = item.obj, sys.modules[item.obj.__module__].__file__

    def of_this_file(name):
        return "a library's" if kind(name) == "user's" and name != file else kind(name)

    def keys(tensor):
        return {storage_key(plain) for plain in loop_memory.strided(tensor)}

    def alone(**arguments):
        before = {key for found in (*tensors(), *held()) for key in keys(found[-1])}
        for name, function in (("held_tensors", tensors), ("held", held)):
            monkeypatch.setattr(
                loop_memory, name, lambda f=function: (x for x in f() if not keys(x[-1]) & before)
            )
        test(**arguments)

    def on_a_thread(**arguments):
        with ThreadPoolExecutor(1) as thread:
            thread.submit(alone, **arguments).result()

    monkeypatch.setattr(loop_memory, "_kind", of_this_file)
    item.obj = on_a_thread
