"""Findings about generation, on calls made by hand: one that has each, and one that has not."""

import msgspec
import pytest
from tests.support import records
from tests.support.generation_calls import DYNAMIC, assisted, call
from tests.support.generation_grids import GAP, cache, generation, grid, grid_cell

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.generation.cells import cell as made_cell
from torchgauge.analyze.generation.cells import cells
from torchgauge.records.generation.cell import StageWork
from torchgauge.records.generation.generation import LargestBatch


def finding(rule, shapes, **parts):
    return next((made for made in findings(generation(shapes, **parts)) if made.id == rule), None)


def one_cell(made, *, calls=3, warmup=0, cache_kind="dynamic", beams=1, **parts):
    shape = {"batch": made.batch, "prompt": made.prompt, "beams": beams, "cache_kind": cache_kind}
    return msgspec.structs.replace(made_cell([made] * calls, **shape, warmup=warmup), **parts)


def decode_work(**parts):
    return StageWork(
        **{
            "stage": "decode",
            "cached": 103,
            "flops": 50_000_000,
            "weight_bytes": 30_000_000,
            "cache_bytes": 2_000_000,
            "activation_bytes": 1_000_000,
            "lower_bound": 0.0046,
            "bound": "memory",
            "reached": 0.46,
            **parts,
        }
    )


def test_decode_beside_its_bound():
    """3 steps of 10 ms, of which 46 % are the bytes."""
    made = finding("decode-bound", [one_cell(call(), work=(decode_work(),))])
    assert made.title == "Decode is bound by memory at 46 % of the bound"
    assert "A step takes 10.00 ms with batch 1, prompt 100, dynamic cache, at least 4.600 ms" in (
        made.evidence
    )
    assert "30.00 MB of weights, 2.000 MB of cache, 1.000 MB of activations and 50.00 M FLOPs" in (
        made.evidence
    )
    assert made.time == pytest.approx(0.03)
    assert made.worth == pytest.approx(0.54 * 0.03)
    assert "int8" in made.remedy
    assert "torch.compile" in made.remedy


def test_decode_far_from_its_bound_is_not_called_bound_by_it():
    made = finding("decode-bound", [one_cell(call(), work=(decode_work(reached=0.04),))])
    assert made.title == "A decode step is far from its bound: 4.0 % of it"
    assert "torch.compile" in made.remedy
    assert "int8" not in made.remedy


def test_decode_near_its_bound_is_no_fault():
    work = decode_work(bound="compute", reached=0.9)
    made = finding("decode-bound", [one_cell(call(), work=(work,))])
    assert made.severity == "info"
    assert "bound by arithmetic at 90 %" in made.title
    assert "torch.compile" not in made.remedy


def test_nothing_is_said_of_a_bound_that_is_not_known():
    unknown = decode_work(lower_bound=None, bound=None, reached=None)
    assert finding("decode-bound", [one_cell(call(), work=(unknown,))]) is None
    assert finding("decode-bound", [one_cell(call())]) is None


def test_attention_that_grows_with_each_position():
    """0.3 µs a pair, four sequences: 1.2 µs a position; 1.27 of 2.67 ms at 1,056 positions."""
    made = finding("attention-growth", grid())
    assert made.title == "Attention grows 1.2 µs a position"
    assert "With 4 sequences" in made.evidence
    assert "1.27 ms of a step of 2.6" in made.evidence
    # 32 steps at 1,040 positions on average.
    assert made.time == pytest.approx(1.2e-6 * 1040 * 32, rel=0.01)
    assert made.worth == made.time


def test_attention_that_takes_next_to_nothing_or_is_not_distinguished():
    short = grid(prompts=(8, 16, 32), batches=(1, 2, 4))
    assert finding("attention-growth", short) is None
    assert finding("attention-growth", grid((1,), (64, 1024))) is None  # no interval
    # As often above the line as below it: the growth may as well be none.
    odd = grid((1, 4), (64, 256), factor=lambda batch, context: 1.3 if context > 200 else 1.0)
    fit = generation(odd).fit("decode", "dynamic")
    assert fit.per_context.value > 0
    assert fit.per_context.interval.low == 0
    assert finding("attention-growth", odd) is None


def test_time_between_forwards():
    """4.5 ms after forwards of 10 ms, three times."""
    made = finding("between-forwards", [one_cell(call(gap=0.0045))])
    assert made.title == "31 % of a decode step is between forwards"
    assert "4.500 ms after a forward of 10.00 ms" in made.evidence
    assert made.time == pytest.approx(3 * 0.0045)
    assert made.worth == made.time
    assert finding("between-forwards", [one_cell(call(gap=0.0004))]) is None


def test_a_prompt_that_each_step_computes_again():
    made = finding("prompt-recomputed", [one_cell(call(cache=None), cache_kind="none")])
    assert made.title == "Each decode step computes the whole sequence again"
    assert "102 positions on average instead of one, 30.00 ms in 3 steps" in made.evidence
    assert made.worth == pytest.approx(0.03 * (1 - 1 / 102))
    assert "use_cache=True" in made.remedy


def test_a_step_with_a_cache_says_what_one_without_could_save():
    without = one_cell(call(cache=None, steps=(0.04,) * 3), cache_kind="none")
    program = generation([one_cell(call()), without], watched=True)
    made = next(made for made in findings(program) if made.id == "prompt-recomputed")
    assert "with a cache a step took 10.00 ms" in made.evidence
    assert made.worth == pytest.approx(3 * 0.03)


def test_a_grid_with_a_cache_is_no_program_without_one():
    without = one_cell(call(cache=None, steps=(0.04,) * 3), cache_kind="none")
    assert finding("prompt-recomputed", [one_cell(call()), without]) is None
    assert finding("prompt-recomputed", [one_cell(call())]) is None


def test_a_state_of_one_position_without_a_cache_recomputes_nothing():
    state = call()
    columns = {name: getattr(state.forwards, name) for name in state.forwards.__struct_fields__}
    forwards = type(state.forwards)(**columns | {"cached": (0,) * 4})
    state = msgspec.structs.replace(state, forwards=forwards, cache=None)
    assert finding("prompt-recomputed", [one_cell(state, cache_kind="none")]) is None


def test_a_static_cache_that_is_far_too_long():
    held = cache(1, 103, kind="StaticCache")
    held = msgspec.structs.replace(held, held=4 * held.used)
    memory = msgspec.structs.replace(records.memory(), peak=400_000)
    shape = one_cell(call(cache=held), cache_kind="static", memory=memory)
    made = finding("unused-cache", [shape])
    assert made.title == "75 % of the static cache holds no token"
    assert "421.9 kB are held and 105.5 kB used" in made.evidence
    assert "79 % of the peak memory" in made.evidence
    assert made.severity == "warning"
    roomy = msgspec.structs.replace(held, held=2 * held.used)
    assert finding("unused-cache", [one_cell(call(cache=roomy), cache_kind="static")]) is None


def test_beams_beside_one_sequence():
    beams = one_cell(call(beams=4, steps=(0.04,) * 3), beams=4)
    single = one_cell(call())
    made = finding("beam-cost", [beams, single])
    assert made.title == "4 beams compute 4 sequences per prompt"
    assert made.time == pytest.approx(3 * 0.03)
    assert "141.0 ms with one sequence" in made.evidence
    alone = finding("beam-cost", [beams])
    assert alone.time == pytest.approx(3 * 0.042 * 3 / 4)
    assert "at most" in alone.evidence
    assert finding("beam-cost", [single]) is None


def test_an_assistant_that_costs_more_than_it_saves():
    """8 rounds of 31 ms and 7 of 24 ms of drafts make 16 tokens; alone a token takes 12 ms."""
    drafted = assisted((2,) * 8)
    shapes = (*cells([call(steps=(0.01,) * 16)]), *cells([drafted] * 3))
    made = finding("slow-assistant", shapes)
    assert made.title == "With the assistant a token takes 2.2 times as long"
    assert (
        "(2.0 tokens a round, of 4.0 drafts of 5.00 ms and a forward of 30.0 ms)" in made.evidence
    )
    assert made.worth == pytest.approx(16 * (0.026 - 0.012))
    quick = cells([assisted((5,) * 8)] * 3)
    assert finding("slow-assistant", (*cells([call()]), *quick)) is None


def test_an_assistant_beside_the_fit_of_other_shapes():
    """By the line a token takes 1.1 ms and a little for each position: 1.15 with 132 of them."""
    drafted = cells([assisted((2,) * 8, prompt=100, cache=cache(1, 117))] * 3)
    made = finding("slow-assistant", (*grid(), *drafted))
    assert "without it 1.1" in made.evidence
    assert finding("slow-assistant", drafted) is None  # what a token takes alone is not known


def test_a_batch_that_reads_the_weights_for_few_sequences():
    """At 1,040 positions 1 ms is fixed and 0.412 ms of each sequence: four times four."""
    shapes = [
        msgspec.structs.replace(shape, work=(decode_work(cached=1_056),))
        for shape in grid((1, 2), (64, 256, 1024))
    ]
    made = finding("small-batch", shapes)
    gain = 4 * (1.0 + 2 * 0.412) / (1.0 + 8 * 0.412)
    assert made.title == f"A batch of 8 would make {gain:.2g} times the tokens per second"
    assert "beyond the batches that were measured" in made.evidence
    assert "weights are 91 % of the bytes" in made.evidence
    assert made.worth is None
    full = LargestBatch(context=1_056, capacity=1, fixed=0, per_sequence=1, largest=2)
    assert finding("small-batch", shapes, largest_batch=full) is None
    busy = [
        msgspec.structs.replace(shape, work=(decode_work(cache_bytes=90_000_000),))
        for shape in shapes
    ]
    assert finding("small-batch", busy) is None


def test_a_batch_that_no_fit_knows_more_of_says_nothing():
    shapes = [
        msgspec.structs.replace(shape, work=(decode_work(),))
        for shape in grid((1,), (64, 128, 256, 512))
    ]
    assert finding("small-batch", shapes) is None


def test_a_context_beyond_the_window():
    windowed = msgspec.structs.replace(DYNAMIC, window=64)
    made = finding("beyond-window", [one_cell(call(cache=windowed))])
    assert made.title == "No layer attends further back than 64 positions"
    assert "reaches 104: the first 40 act" in made.evidence
    wide = msgspec.structs.replace(DYNAMIC, window=104)
    assert finding("beyond-window", [one_cell(call(cache=wide))]) is None
    assert finding("beyond-window", [one_cell(call())]) is None


def test_a_first_call_that_compiles():
    """141 ms a call, the first 30 s."""
    slow = call(prefill=30.0)
    shape = {"batch": 1, "prompt": 100, "beams": 1, "cache_kind": "dynamic"}
    warmed = made_cell([slow, *[call()] * 3], **shape, warmup=1)
    made = finding("slow-first-call", [warmed])
    assert made.title.startswith("The first call takes 210 times")
    assert "30.04 s, later ones 141.0 ms" in made.evidence
    assert "it is in no other figure" in made.evidence
    assert made.worth is None
    longer = made_cell([call(steps=(0.01,) * 99), *[call()] * 3], **shape)
    assert finding("slow-first-call", [longer]) is None
    alike = made_cell([call(prefill=0.2), *[call()] * 3], **shape, warmup=1)
    assert finding("slow-first-call", [alike]) is None


def test_findings_are_about_the_longest_cell_and_in_order_of_what_they_are_worth():
    work = (decode_work(reached=0.9),)
    short = one_cell(call(gap=0.009))
    long = one_cell(call(steps=(0.1,) * 9, gap=0.03), work=work)
    made = findings(generation([short, long]))
    ids = [entry.id for entry in made]
    assert ids[:2] == ["between-forwards", "decode-bound"]
    assert made[0].title.startswith("23 %")
    assert made[0].worth == pytest.approx(9 * 0.03)


def test_what_takes_little_of_a_call_is_not_found():
    """Forwards of 1 ms after a prompt of a second: whatever lies between them is no matter."""
    shape = one_cell(call(prefill=1.0, steps=(0.001,) * 3, gap=0.001))
    assert finding("between-forwards", [shape]) is None


@pytest.mark.parametrize("shapes", [[], [grid_cell(1, 64, calls=0)], [one_cell(call(steps=()))]])
def test_generation_of_which_nothing_is_known_has_no_findings(shapes):
    assert findings(generation(shapes)) == ()


def test_a_plain_grid_is_without_faults():
    made = {entry.id for entry in findings(generation(grid()))}
    assert made <= {"attention-growth", "between-forwards"}
    assert GAP < 0.001
