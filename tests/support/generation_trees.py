"""The trees of a prefill and of a decode step, made by hand."""

from tests.support import pages

from torchgauge.records.generation.generation import StageTree
from torchgauge.records.timeline.tree import Tree

LAYERS = 12
# Of a layer: its products with their share of its time and parameters.
PRODUCTS = {"q_proj": 0.1, "k_proj": 0.1, "v_proj": 0.1, "o_proj": 0.1, "gate_proj": 0.2,
            "up_proj": 0.2, "down_proj": 0.2}  # fmt: skip
PARAMETERS = 7_000_000


def trees():
    """Return them for batch 1, prompt 128: attention grows with the prompt, products alike."""
    return (
        StageTree(stage="prefill", cell=0, cached=0, tree=stage_tree(5_500_000, 128, 900_000)),
        StageTree(stage="decode", cell=0, cached=191, tree=stage_tree(2_400_000, 1, 260_000)),
    )


def stage_tree(layer_ns, tokens, attention_ns):
    rows = [pages.row("LlamaForCausalLM", "model", -1, host=200_000, type="LlamaForCausalLM")]
    rows.append(pages.row("embed_tokens", "layer", 0, host=9_000, type="Embedding"))
    for number in range(LAYERS):
        top = len(rows)
        rows.append(pages.row(f"{number}", "layer", 0, path=f"model.layers.{number}", host=30_000,
                              type="LlamaDecoderLayer"))  # fmt: skip
        for part in ("self_attn", "mlp"):
            above = len(rows)
            path = f"model.layers.{number}.{part}"
            kind = "LlamaAttention" if part == "self_attn" else "LlamaMLP"
            rows.append(pages.row(part, "layer", top, path=path, host=20_000, type=kind))
            for name, share in PRODUCTS.items():
                if (name[0] in "qkvo") == (part == "self_attn"):
                    rows += _product(name, f"{path}.{name}", len(rows), above, share, layer_ns,
                                     tokens)  # fmt: skip
            if part == "self_attn":
                rows.append(
                    pages.row("aten::scaled_dot_product_attention", "operator", above,
                              host=attention_ns, flops=4 * 768 * tokens * 128)
                )  # fmt: skip
    head = len(rows)
    rows.append(pages.row("lm_head", "layer", 0, host=10_000, type="Linear"))
    rows.append(pages.row("aten::linear", "operator", head, host=4_100_000, flops=50_000_000))
    return Tree(rows=tuple(rows))


def _product(name, path, index, above, share, layer_ns, tokens):
    parameters = round(PARAMETERS * share)
    return [
        pages.row(name, "layer", above, path=path, host=9_000, type="Linear",
                  parameters=parameters),
        pages.row("aten::linear", "operator", index, host=round(layer_ns * share),
                  flops=2 * parameters * tokens, bytes=4 * parameters),
    ]  # fmt: skip
