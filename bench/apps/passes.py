# SPDX-License-Identifier: Apache-2.0
"""
passes - what the Python programs share: later passes timed in one process, a hash over every output byte.

What:       the first pass warms up (start, compilation, autotuning) and is not timed; the median of the rest is.
Not here:   anything that knows about cupola; the programs themselves.
Variables:  PASSES, how many in place of the program's own number.
Invariants: every pass starts from the same seeds and must give the same hash, the first included.
"""
import hashlib
import os
import statistics
import sys
import time

SKIP = 77  # exit code of "not here": CTest and compare.py know it


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIP)


class Clock:
    """Adds up the time between start() and stop(); both wait for the device first, so hashing stays outside."""

    def __init__(self, synchronize):
        self.synchronize = synchronize
        self.total_s = 0.0

    def start(self):
        self.synchronize()
        self.begin = time.perf_counter()

    def stop(self):
        self.synchronize()
        self.total_s += time.perf_counter() - self.begin


class Hash:
    """Over the bytes of host arrays (numpy), in the order they come."""

    def __init__(self):
        self.state = hashlib.blake2b(digest_size=8)

    def add(self, array):
        self.state.update(array.tobytes())

    def text(self):
        return "0x" + self.state.hexdigest()


def run(name, synchronize, run_pass, passes=7):
    """run_pass(clock, outputs) does one pass. Prints the line that compare.py reads."""
    passes = int(os.environ.get("PASSES", passes))
    times, hashes = [], []
    for _ in range(passes):
        clock, outputs = Clock(synchronize), Hash()
        run_pass(clock, outputs)
        times.append(clock.total_s)
        hashes.append(outputs.text())
    print(f"name={name} time_s={statistics.median(times[1:]):.6f} passes={passes - 1} hash={hashes[-1]}", flush=True)
    if len(set(hashes)) != 1:
        sys.exit(f"{name}: the passes of one process differ: {' '.join(hashes)}")


def require_torch():
    """torch on a GPU with deterministic algorithms, so that outputs can be compared at all."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        import torch
    except ImportError:
        skip("no PyTorch (torch) for this python3")
    if not torch.cuda.is_available():
        skip("PyTorch finds no GPU")
    torch.use_deterministic_algorithms(True)
    # Filling what torch.empty returns would be work that ordinary programs don't do.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    return torch


def train(torch, clock, outputs, model, optimizer, batches):
    """A training step for each (input, target) of batches; into outputs go the losses and the trained model."""
    losses = []
    clock.start()
    for inputs, target in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    clock.stop()
    outputs.add(torch.stack(losses).float().cpu().numpy())
    add_model(outputs, model)


def add_model(outputs, model):
    """Every byte of every parameter and buffer."""
    import torch

    for tensor in model.state_dict().values():
        outputs.add(tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy())
