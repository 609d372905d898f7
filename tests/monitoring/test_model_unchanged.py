"""A monitored model is what it was: state, copies, pickles, wrappers, compiled code."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import torchgauge as tg


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 2)

    def forward(self, x, *, scale=1.0):
        return self.second(self.first(x).relu()) * scale


X = torch.ones(3, 4)


def calls(monitor):
    return sum(w.count for w in monitor.totals() if w.series == "latency")


@pytest.mark.parametrize("every", [1, 3])
def test_outputs_state_copies_and_pickles_are_the_same(every):
    net = Net()
    expected, state = net(X, scale=2.0), copy.deepcopy(net.state_dict())
    attributes, kind, pickled = set(vars(net)), type(net), pickle.dumps(net)
    with tg.monitor(net, every=every, layers=2) as monitor:
        assert torch.equal(net(X, scale=2.0), expected)
        assert type(net) is kind
        assert list(net.state_dict()) == list(state)
        assert pickle.dumps(net) == pickled
        for twin in (copy.deepcopy(net), copy.copy(net), pickle.loads(pickle.dumps(net))):
            assert torch.equal(twin(X, scale=2.0), expected)
        assert torch.equal(net.forward(X, scale=2.0), expected)
        buffer = io.BytesIO()
        torch.save(net, buffer)
        buffer.seek(0)
        assert torch.equal(torch.load(buffer, weights_only=False)(X, scale=2.0), expected)
        # Copies are not monitored: they are other models.
        assert calls(monitor) == 1
    assert set(vars(net)) == attributes
    assert torch.equal(net(X, scale=2.0), expected)
    assert calls(monitor) == 1


def test_gradients_hooks_and_training_are_the_same():
    net, twin = Net(), Net()
    twin.load_state_dict(net.state_dict())
    seen = []
    with tg.monitor(net):
        for model in (net, twin):
            model.register_forward_hook(lambda module, args, output: seen.append(output.sum()))
            model(X).sum().backward()
    assert torch.equal(net.first.weight.grad, twin.first.weight.grad)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("every", [1, 100])
def test_hooks_that_come_and_go_and_calls_of_their_own_are_run(every):
    net, noted = Net(), []
    with tg.monitor(net, every=every, layers=0):
        expected = net(X)
        for register in (net.register_forward_hook, nn.modules.module.register_module_forward_hook):
            handle = register(lambda module, args, output: noted.append(type(module)))
            net(X)
            handle.remove()
            net(X)
        net.register_full_backward_hook(lambda *_: noted.append("backward"))
        net(X).sum().backward()
    assert noted == [Net, nn.Linear, nn.Linear, Net, "backward"]
    assert expected.shape == (3, 2)

    replaced = Net()
    with tg.monitor(replaced, every=every):
        replaced(X)
        replaced.forward = lambda x: "replaced"
        assert replaced(X) == "replaced"

    class Own(Net):
        def _call_impl(self, *args, **kwargs):
            return "its own"

    own = Own()
    with tg.monitor(own, every=every) as monitor:
        assert [own(X) for _ in range(3)] == ["its own"] * 3
        assert calls(monitor) == 3


def test_monitors_nest_and_end_in_any_order():
    net = Net()
    first, second = tg.monitor(net, name="first"), tg.monitor(net, name="second")
    net(X)
    first.close()
    net(X)
    second.close()
    net(X)
    assert (calls(first), calls(second)) == (2, 2)


def test_a_layer_s_monitor_and_layers_that_raise_are_passed_on():
    net, noted = Net(), []
    net.first.register_forward_hook(lambda *_: noted.append(len(noted)))

    class Raising(nn.Module):
        def forward(self, x):
            raise ValueError

    class Tolerant(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.bad = net, Raising()

        def forward(self, x):
            try:
                self.bad(x)
            except ValueError:
                return self.net(x)

    model = Tolerant()
    inner = tg.monitor(net, name="inner", layers=0)
    with tg.monitor(model, layers=1) as outer:
        model(X)
        inner.close()
        model(X)
    counts = {w.labels["layer"]: w.count for w in outer.totals() if w.series == "layer"}
    assert counts == dict.fromkeys(["net", "net.first", "net.second"], counts["net"])
    assert counts["net"] >= 1
    assert (calls(inner), calls(outer), noted) == (1, 2, [0, 1])
    assert all("_compiled_call_impl" not in vars(part) for part in model.modules())


def test_replicas_of_data_parallel_call_themselves():
    net = Net()
    with tg.monitor(net) as monitor:
        replica = net._replicate_for_data_parallel()
        replica.forward = lambda x: "the replica's own"
        assert replica(X) == "the replica's own"
        net(X)
        assert calls(monitor) == 2
        wrapper = nn.DataParallel(net)
        assert torch.equal(wrapper(X), net(X))
    assert "_compiled_call_impl" not in vars(net._replicate_for_data_parallel())


def test_a_model_ends_although_it_is_monitored():
    import gc
    import weakref

    net = Net()
    reference = weakref.ref(net)
    monitor = tg.monitor(net)
    del net
    gc.collect()
    assert reference() is None
    monitor.tick(monitor._window_end + 1)
    assert monitor.status == ()


@pytest.mark.thorough
def test_traces_and_exports_are_the_same():
    net = Net().eval()
    expected, scopes = net(X), scopes_of(torch.jit.trace(net, X))
    with tg.monitor(net.first) as monitor:
        net(X)  # a special call, and then the usual ones
        monitor._meters[0].countdown[0] = 100
        traced = torch.jit.trace(net, X)
        assert torch.equal(traced(X), expected)
        assert scopes_of(traced) == scopes
    with tg.monitor(net):
        assert torch.equal(torch.jit.trace(net, X)(X), expected)
        assert torch.equal(torch.export.export(net, (X,)).module()(X), expected)
        assert torch.equal(torch.fx.symbolic_trace(net)(X), expected)


def scopes_of(traced):
    return [(node.kind(), node.scopeName()) for node in traced.inlined_graph.nodes()]


@pytest.mark.thorough
def test_compiled_code_is_the_same_and_its_calls_are_timed():
    import torch._dynamo
    from torch._dynamo.testing import CompileCounter

    def explained(function):
        torch._dynamo.reset()
        report = torch._dynamo.explain(function)(X)
        return report.graph_count, report.graph_break_count

    for net in (Net(), nn.Sequential(nn.Linear(4, 4), nn.ReLU())):

        def within(x, net=net):
            return net(x) + 1

        bare = explained(net), explained(within)
        with tg.monitor(net, layers=1):
            assert (explained(net), explained(within)) == bare == ((1, 0), (1, 0))
    net = Net()
    for order in ("monitored first", "compiled first", "in place"):
        torch._dynamo.reset()
        counter = CompileCounter()
        monitored = net if order != "compiled first" else torch.compile(net, backend=counter)
        with tg.monitor(monitored, layers=2) as monitor:
            if order == "monitored first":
                call = torch.compile(net, backend=counter, fullgraph=True)
            else:
                call = monitored
            if order == "in place":
                net.compile(backend=counter, fullgraph=True)
                monitor.tick(0.0)  # which wraps what took the timer's place
            for _ in range(50):
                call(X)
            assert (counter.frame_count, calls(monitor)) == (1, 50), order
    assert "_compiled_call_impl" in vars(net)


@pytest.mark.thorough
def test_layers_that_are_compiled_are_timed_whole_and_not_compiled_again():
    import torch._dynamo
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    net = nn.Sequential(Net(), Net(), Net())
    net[1].compile(backend=counter)
    net[2].first = torch.compile(net[2].first, backend=counter)
    net[0] = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    net[1].second = nn.Linear(4, 4)
    expected = net(X)
    compiled = counter.frame_count
    with tg.monitor(net, layers=1) as monitor:
        for _ in range(300):
            assert torch.equal(net(X), expected)
        counts = {w.labels["layer"]: w.count for w in monitor.totals() if w.series == "layer"}
    assert counter.frame_count == compiled == 2
    timed = counts["0"]
    assert timed >= 1
    layers = ["0", "1", "2", "0.0", "0.1", "2.first", "2.second"]
    assert counts == dict.fromkeys(layers, timed)
    assert all("_compiled_call_impl" not in vars(part) for part in (net[0], net[2], net[2].first))
    assert "_compiled_call_impl" in vars(net[1])


# torch frees a group while it holds Python's lock, for which the group's threads may still wait.
GROUPS = []


@pytest.mark.thorough
@pytest.mark.parametrize("wrapped", ["DDP", "FSDP", "fully_shard"])
def test_wrappers_for_several_processes_are_the_same(wrapped, tmp_path):
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    try:
        results = []
        for watched in (False, True):
            torch.manual_seed(0)
            net = Net()
            monitor = tg.monitor(net) if watched else None
            model = wrap(wrapped, net)
            output = model(X)
            output.sum().backward()
            gradients = [parameter.grad.sum().item() for parameter in model.parameters()]
            results.append((output, list(model.state_dict()), gradients))
        (output, keys, gradients), watched = results
        assert torch.equal(output, watched[0])
        assert (keys, gradients) == watched[1:]
        assert calls(monitor) == 1
    finally:
        GROUPS.append(dist.group.WORLD)
        dist.destroy_process_group()


def wrap(kind, net):
    if kind == "DDP":
        return nn.parallel.DistributedDataParallel(net)
    if kind == "FSDP":
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh

    fully_shard(net, mesh=init_device_mesh("cpu", (1,)))
    return net
