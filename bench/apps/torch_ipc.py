# SPDX-License-Identifier: Apache-2.0
"""
torch_ipc - torch.multiprocessing: one process makes CUDA tensors, others open them, check every word and let them go.

What:       many tensors a segment and some of their own, to 2 and to 3 consumers; half of them the producer drops before
            the consumers have looked; each consumer keeps some into the next round, while the producer reuses what came
            back, and checks them again. A line a mode:
              pool      PyTorch's own pool, as ever
              uncached  PYTORCH_NO_CUDA_MEMORY_CACHING=1: each tensor is an allocation of the driver
            A mode whose tensors PyTorch itself refuses to share is "refused", with what it said: compare it with a run
            without the preload.
Not here:   anything that knows about cupola.
Invariants: contents depend on seed and size alone; nobody waits for longer than WAIT_S.
Exit code:  0 all words right; 4 that, but a mode was refused; 1 wrong words, or a consumer failed; 3 no answer in time;
            77 no PyTorch or GPU.
"""
import os
import random
import subprocess
import sys

import passes

MODES = {"pool": {}, "uncached": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}}
ROUNDS = 8
WAIT_S = 60
COPIES = 4
WORDS = [1, 31, 512, 8191, 65536, 400_000, 1_500_000]  # of 8 bytes: down to many a segment, up to one of their own
REFUSED, HANG = 4, 3


def contents(torch, words, seed, device):
    return torch.arange(words, dtype=torch.int64, device=device) * 7919 + seed


def wrong_words(torch, tensor, seed):
    return int((tensor.cpu() != contents(torch, tensor.numel(), seed, "cpu")).sum())


def consume(connection, number):
    """Checks what comes, in an order of its own, and again what it kept from the round before."""
    import torch

    order, kept = random.Random(number), []
    while True:
        batch = connection.recv()
        if batch is None:
            break
        wrong = sum(wrong_words(torch, tensor, seed) for seed, tensor in kept)
        kept = []
        order.shuffle(batch)
        while batch:
            seed, tensor = batch.pop()
            wrong += wrong_words(torch, tensor, seed)
            if order.random() < 0.25:
                kept.append((seed, tensor))
            del tensor
        torch.cuda.synchronize()
        connection.send(wrong)
    kept.clear()
    torch.cuda.synchronize()
    connection.send(0)
    connection.close()


def make(torch, order, seeds):
    words = WORDS * COPIES
    order.shuffle(words)
    return [(seed, contents(torch, count, seed, "cuda")) for seed, count in zip(seeds, words)]


def answer(connection):
    if not connection.poll(WAIT_S):
        print("torch_ipc: no answer", flush=True)
        os._exit(HANG)  # not through the driver, which may be what hangs; the consumers see their pipes end
    try:
        return connection.recv()
    except EOFError:
        print("torch_ipc: a consumer has failed", flush=True)
        os._exit(1)


def run_round(torch, connections, order, number):
    first = 1 + number * len(WORDS) * COPIES
    batch = make(torch, order, range(first, first + len(WORDS) * COPIES))
    torch.cuda.synchronize()
    for connection in connections:
        connection.send(list(batch))
    order.shuffle(batch)
    del batch[len(batch) // 2:]  # the consumers have not looked yet
    junk = [contents(torch, count, -1, "cuda") for count in WORDS]  # takes the place of what is free by now
    wrong = sum(answer(connection) for connection in connections)
    wrong += sum(wrong_words(torch, tensor, seed) for seed, tensor in batch)
    while batch:
        batch.pop(order.randrange(len(batch)))
    del junk
    torch.cuda.ipc_collect()
    return wrong


def produce(torch, consumers):
    """Words that were wrong, over all rounds."""
    import torch.multiprocessing as multiprocessing

    spawn, order = multiprocessing.get_context("spawn"), random.Random(consumers)
    pairs = [spawn.Pipe() for _ in range(consumers)]
    members = [spawn.Process(target=consume, args=(theirs, number), daemon=True)
               for number, (_, theirs) in enumerate(pairs)]
    for member, (_, theirs) in zip(members, pairs):
        member.start()
        theirs.close()  # or the end of a consumer would go unseen
    connections = [ours for ours, _ in pairs]
    try:
        wrong = sum(run_round(torch, connections, order, number) for number in range(ROUNDS))
        for connection in connections:
            connection.send(None)
        wrong += sum(answer(connection) for connection in connections)
        for member in members:
            member.join(WAIT_S)
        if any(member.exitcode != 0 for member in members):
            print(f"torch_ipc: exit codes {[member.exitcode for member in members]}", flush=True)
            wrong += 1
        return wrong
    finally:
        for member in members:
            if member.is_alive():
                member.kill()


def run_mode(mode):
    try:
        import torch
    except ImportError:
        passes.skip("no PyTorch (torch) for this python3")
    if not torch.cuda.is_available():
        passes.skip("PyTorch finds no GPU")
    code = 0
    for consumers in (2, 3):
        try:
            wrong = produce(torch, consumers)
        except RuntimeError as error:
            print(f"name=torch_ipc mode={mode} consumers={consumers} refused: {str(error).splitlines()[0]}", flush=True)
            return REFUSED
        tensors = ROUNDS * len(WORDS) * COPIES
        print(f"name=torch_ipc mode={mode} consumers={consumers} rounds={ROUNDS} tensors={tensors} wrong={wrong}",
              flush=True)
        code = code or int(wrong != 0)
    return code


def main():
    codes = []
    for mode, variables in MODES.items():
        environment = {name: value for name, value in os.environ.items() if name != "PYTORCH_NO_CUDA_MEMORY_CACHING"}
        command = [sys.executable, __file__, mode]
        codes.append(subprocess.run(command, env={**environment, **variables}, check=False).returncode)
        if codes[-1] == passes.SKIP:
            sys.exit(passes.SKIP)
    bad = [code for code in codes if code not in (0, REFUSED)]
    sys.exit(bad[0] if bad else max(codes))


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in MODES:
        sys.exit(run_mode(sys.argv[1]))
    if len(sys.argv) > 1:
        sys.exit(f"usage: torch_ipc.py [{'|'.join(MODES)}]")
    main()
