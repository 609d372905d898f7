"""What TraceML says of faults in a two-rank loop, beside the verdict of `torchgauge run`.

    python -m venv traceml && traceml/bin/pip install traceml-ai==0.5.0 torch
    python benchmarks/loop_faults_traceml.py traceml/bin/traceml

TraceML measures in the block of `traceml.trace_step`: the loop's body is put into one, in a copy of
loop_faults_job.py. `torchgauge run` takes the job as it is.
"""

import argparse
import ast
import subprocess
import tempfile
from pathlib import Path

from loop_faults import JOB, verdict

CASES = (("loader", 1), ("backward", 0), ("item", -1))
LINES = ("Verdict:", "Why:", "Next:")


class _Traced(ast.NodeTransformer):
    """Puts the body of the training loop into TraceML's block."""

    def visit_FunctionDef(self, node):
        """Change the function that trains."""
        if node.name != "train":
            return node
        (loop,) = (statement for statement in node.body if isinstance(statement, ast.For))
        (block,) = ast.parse("with traceml.trace_step(model):\n    pass").body
        block.body, loop.body = loop.body, [block]
        return node


def traced_job():
    """Return the job's source with TraceML in it."""
    tree = _Traced().visit(ast.parse(JOB.read_text()))
    tree.body[1:1] = ast.parse("import traceml_ai as traceml\ntraceml.init()").body
    return ast.unparse(ast.fix_missing_locations(tree))


def traceml_lines(program, arguments):
    """Return the lines of TraceML's summary that say what is wrong, or how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.py"
        job.write_text(traced_job())
        command = [
            program, "run", "--nproc-per-node", "2", "--logs-dir", folder, "--run-name", "run",
            str(job), "--args", *arguments,
        ]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        summary = next(Path(folder).rglob("final_summary.txt"), None)
        if summary is None:
            return [f"no summary, exit code {ended.returncode}", ended.stderr[-1500:]]
        lines = [line.strip("| ") for line in summary.read_text().splitlines()]
        return [line for line in lines if line.startswith(LINES)] or lines


def main():
    """Print what both say of each case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("traceml", help="its program")
    parser.add_argument("--steps", type=int, default=80)
    options = parser.parse_args()
    for fault, rank in CASES:
        print(f"{fault}, {'all ranks' if rank < 0 else f'rank {rank}'}")
        arguments = [fault, "--rank", f"{rank}", "--extra", "0.5", "--steps", f"{options.steps}"]
        for line in traceml_lines(options.traceml, arguments):
            print(f"  TraceML: {line}")
        found = verdict(fault, rank, 0.5, options.steps, None)
        print(f"  torchgauge: {found.title}", flush=True)


if __name__ == "__main__":
    main()
