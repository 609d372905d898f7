"""The tree of a recorded trace."""

from torchgauge.analyze.trace.device_work import attributed, tree_of
from torchgauge.analyze.work.event_costs import event_costs


def recorded_tree(events):
    modules, spans = attributed(events)
    return tree_of(events, modules, spans, event_costs(events, spans))
