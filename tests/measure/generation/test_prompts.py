"""Prompts of a shape: drawn without special tokens, or made of the user's ids."""

import pytest
import torch
from tests.support import language_models as models
from torch import nn

from torchgauge.errors import InputError
from torchgauge.measure.generation.generation_options import GenerationOptions
from torchgauge.measure.generation.prompts import Prompts, learned_positions
from torchgauge.targets.builds.source import Source


def prompts(model, inputs=None):
    placement = Source.of_object(model, inputs, raw=True).open()
    return Prompts.of_placement(placement, has_inputs=inputs is not None)


def test_drawn_ids_are_no_special_tokens_and_always_the_same():
    model = models.llama(vocab_size=5, eos_token_id=[2, 3], bos_token_id=1)
    drawn = prompts(model).make(4, 50)
    assert drawn["input_ids"].shape == drawn["attention_mask"].shape == (4, 50)
    assert set(drawn["input_ids"].flatten().tolist()) == {0, 4}
    assert torch.equal(drawn["input_ids"], prompts(model).make(4, 50)["input_ids"])


def test_a_mask_is_given_only_to_a_model_that_takes_it():
    assert list(prompts(models.OwnModel()).make(1, 3)) == ["input_ids"]


def test_features_have_the_precision_of_the_model():
    made = prompts(models.whisper().to(torch.bfloat16))
    assert made.shapes(GenerationOptions(prompts=(7,), batches=(2,))) == ((2,), (50,))
    features = made.make(2, 50)["input_features"]
    assert (features.shape, features.dtype) == ((2, 80, 100), torch.bfloat16)


def test_without_a_length_half_of_few_positions_are_the_prompt():
    options = GenerationOptions()
    assert prompts(models.gpt2()).shapes(options) == ((1,), (64,))
    assert prompts(models.llama()).shapes(options) == ((1,), (128,))


def test_inputs_with_more_than_ids_keep_their_shape():
    ids, pixels = torch.ones(1, 4, dtype=torch.long), torch.zeros(1, 3, 8, 8)
    made = prompts(models.llama(), {"input_ids": ids, "pixel_values": pixels})
    assert made.shapes(GenerationOptions()) == ((1,), (4,))
    assert set(made.make(1, 4)) == {"input_ids", "pixel_values"}
    with pytest.raises(InputError) as raised:
        made.make(2, 4)
    assert raised.value.id == "inputs-fixed"


def test_a_table_of_a_vision_tower_limits_no_text():
    model = models.llama(max_position_embeddings=64)
    model.tower = nn.Module()
    model.tower.position_embedding = nn.Embedding(50, 8)
    assert learned_positions(model) is None
    assert learned_positions(models.gpt2()) == 128


@pytest.mark.parametrize(
    "option",
    [
        {"prompts": (0,)},
        {"batches": ("4",)},
        {"beams": 0},
        {"new_tokens": 0},
        {"caches": ()},
        {"caches": ("paged",)},
        {"predict": ((1, 2, 3),)},
        {"predict": ((1, 0),)},
        {"effort": "standard"},
    ],
)
def test_impossible_options_are_refused(option):
    with pytest.raises(InputError):
        GenerationOptions(**option)
