"""How jax_cpu.trace.json.gz was recorded, with jax on a CPU: three steps of a small gradient.

python record_jax_cpu.py FOLDER   # writes FOLDER/plugins/profile/*/*.trace.json.gz
python - FOLDER < record_jax_cpu.py   # the same without the path of this file

jax_cpu.xplane.pb.gz and jax_cpu_xplane.trace.json.gz are of one recording, by jax 0.10.2.
"""

import sys

import jax
import jax.numpy as jnp

jax.config.update("jax_platforms", "cpu")


@jax.jit
def model(weights, x):
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return x.sum()


weights, x = [jnp.ones((128, 128)) * 0.01 for _ in range(3)], jnp.ones((32, 128))
gradient = jax.jit(jax.grad(model))
jax.block_until_ready(gradient(weights, x))
with jax.profiler.trace(sys.argv[1], create_perfetto_trace=True):
    for step in range(3):
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            jax.block_until_ready(gradient(weights, x))
