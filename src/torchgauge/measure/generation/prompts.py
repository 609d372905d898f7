"""The inputs of a cell: a batch of prompts of one length, drawn at random or made of the user's.

What a model is told in its prompts changes nothing about its time, but for experts that tokens are
sent to; special tokens are left out, since some stand for an image.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from torchgauge.errors import InputError
from torchgauge.measure.generation.generation_options import PROMPT, GenerationOptions
from torchgauge.targets import members
from torchgauge.targets.huggingface import huggingface_sizes as sizes
from torchgauge.targets.huggingface.huggingface_inputs import Needs
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.fake_tensors import RandomTensors
from torchgauge.targets.placement import Placement

IDS, MASK = "input_ids", "attention_mask"
FEATURES = ("input_features", "input_values")
_RESIZABLE = {IDS, MASK}
_ROWS_BEFORE = 8
_POSITION_TABLES = ("wpe", "embed_positions", "position_embeddings", "position_embedding")


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Makes the keyword inputs of `generate()` in any shape, always the same ones.

    Attributes:
        placement: The model on its device.
        inputs: Those of the user by name; empty where they are to be drawn.
    """

    placement: Placement
    inputs: Mapping[str, Any]

    @staticmethod
    def of_placement(placement: Placement, *, has_inputs: bool) -> Prompts:
        """Return what makes prompts: of the placement's inputs where it `has_inputs`."""
        inputs: dict[str, Any] = {}
        if has_inputs:
            inputs = dict(placement.inputs.kwargs)
            names = (main_input(placement.model), MASK)
            inputs |= dict(zip(names, placement.inputs.args, strict=False))
        return Prompts(placement, inputs)

    @property
    def main(self) -> str:
        """The name of the input that the prompt is in."""
        name = main_input(self.placement.model)
        if IDS in self.inputs and name not in FEATURES:  # pixels come with the ids of a prompt
            return IDS
        if self.inputs and name not in self.inputs:
            return next(iter(self.inputs))
        return name

    def shapes(self, options: GenerationOptions) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the batches and the lengths of prompts to measure."""
        batch, length = self._own_shape()
        if self.main in FEATURES:  # as long as the encoder takes them, whatever is asked
            return options.batches or (batch,), (length,)
        return options.batches or (batch,), options.prompts or (length,)

    def make(self, batch: int, prompt: int) -> dict[str, Any]:
        """Return the inputs of a shape.

        Raises InputError `inputs-fixed` where the user's have another one and cannot be resized.
        """
        if not self.inputs:
            return self._drawn(batch, prompt)
        if (batch, prompt) == self._own_shape():
            return dict(self.inputs)
        if not set(self.inputs) <= _RESIZABLE:
            raise InputError(
                f"The inputs cannot be brought to batch {batch} and prompt {prompt}.",
                id="inputs-fixed",
                cause=f"They hold more than token ids: {', '.join(sorted(self.inputs))}.",
                remedy="Leave prompt and batch out, or give token ids alone.",
            )
        return {name: _resized(ids, batch, prompt) for name, ids in self.inputs.items()}

    def obstacle(self, prompt: int, new_tokens: int) -> str:
        """Return why the model cannot generate from such a prompt; empty where it can.

        Behind the last of its learned positions a model raises, on a GPU beyond repair.
        """
        model = module_of(self.placement.model)
        limit = None if model is None else learned_positions(model)
        if limit is None or self.main in FEATURES:
            return ""
        needed = prompt + new_tokens
        if is_encoder_decoder(model):
            needed = max(prompt, new_tokens + 1)
        if needed <= limit:
            return ""
        return f"The model has {limit:,} learned positions, and this takes {needed:,}."

    def _own_shape(self) -> tuple[int, int]:
        if not self.inputs:
            if self.main in FEATURES:
                return 1, _feature_positions(self.placement.model, self._drawn(1, 1)[self.main])
            return 1, self._default_length()
        value = self.inputs[self.main]
        if self.main in FEATURES:
            return int(value.shape[0]), _feature_positions(self.placement.model, value)
        return int(value.shape[0]), int(value.shape[1])

    def _default_length(self) -> int:
        """Return 128, or half of the learned positions where there are fewer."""
        model = module_of(self.placement.model)
        limit = None if model is None else learned_positions(model)
        return PROMPT if limit is None else max(1, min(PROMPT, limit // 2))

    def _drawn(self, batch: int, prompt: int) -> dict[str, Any]:
        model, draw = self.placement.model, RandomTensors(self.placement.device)
        name = main_input(model)
        if name in FEATURES:
            values = Needs(model, draw, batch).makers()[name]()
            return {name: values.to(_floats_of(model))}
        ids = _token_ids(model, draw, batch, prompt)
        inputs = {name: ids}
        if takes(model, MASK):
            inputs[MASK] = torch.ones_like(ids)
        return inputs


def fresh(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs for one call, which may write to whatever is not a tensor, such as a cache."""
    return {
        name: value if isinstance(value, torch.Tensor) else copy.deepcopy(value)
        for name, value in inputs.items()
    }


def main_input(model: Any) -> str:
    """Return the name of the input that a model's prompt is in."""
    name = getattr(model, "main_input_name", IDS)
    return name if isinstance(name, str) else IDS


def is_encoder_decoder(model: Any) -> bool:
    """Return whether the prompt goes through an encoder of its own."""
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def takes(model: Any, name: str) -> bool:
    """Return whether the model's forward has a parameter of that name."""
    return name in inspect.signature(getattr(model, "forward", model)).parameters


def learned_positions(model: nn.Module) -> int | None:
    """Return for how many positions of text a model has embeddings; None without a table of them.

    The table is as long as the configuration says, but for a few rows that some begin behind. That
    of a vision tower is another one.
    """
    config = getattr(model, "config", None)
    limit = None if config is None else sizes.find(config, sizes.POSITIONS, sizes.TEXT_PARTS)
    if not isinstance(limit, int):
        return None
    learned = any(
        limit <= module.num_embeddings <= limit + _ROWS_BEFORE
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and name.endswith(_POSITION_TABLES)
    )
    return limit if learned else None


def _token_ids(model: Any, draw: RandomTensors, batch: int, prompt: int) -> torch.Tensor:
    config = getattr(model, "config", None)
    size = _vocabulary(model) if config is None else sizes.vocabulary(model)
    special = set() if config is None else sizes.special_tokens(config)
    ids = draw.integers(size, batch, prompt)
    plain = next((token for token in range(size) if token not in special), 0)
    for token in special:
        ids[ids == token] = plain
    return ids


def _vocabulary(model: Any) -> int:
    module = module_of(model)
    tables = [] if module is None else [m for m in module.modules() if isinstance(m, nn.Embedding)]
    if not tables:
        raise InputError(
            "It is not known how many tokens the model has.",
            id="input-missing",
            cause="It has neither a configuration nor an embedding table.",
            remedy="Give inputs: the token ids of a prompt.",
        )
    return tables[0].num_embeddings


def _feature_positions(model: Any, features: torch.Tensor) -> int:
    positions = sizes.find(model.config, ("max_source_positions",), sizes.AUDIO_PARTS)
    return int(positions) if isinstance(positions, int) else int(features.shape[-1])


def _floats_of(model: Any) -> torch.dtype:
    module = module_of(model)
    parameters = [] if module is None else members.parameters(module)
    return next((p.dtype for p in parameters if p.is_floating_point()), torch.float32)


def _resized(ids: torch.Tensor, batch: int, prompt: int) -> torch.Tensor:
    """Repeat rows and positions, from the last one backwards: padding is on the left."""
    rows = torch.arange(batch, device=ids.device) % ids.shape[0]
    positions = torch.arange(-prompt, 0, device=ids.device) % ids.shape[1]
    return ids[rows][:, positions]
