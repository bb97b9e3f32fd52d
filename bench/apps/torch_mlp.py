# SPDX-License-Identifier: Apache-2.0
"""
torch_mlp - 50 training steps of a multilayer perceptron. Run with PYTORCH_NO_CUDA_MEMORY_CACHING=1 every tensor is
an allocation of the driver; without it PyTorch's own pool serves them.
"""
import passes

STEPS = 50
BATCH, INPUT, HIDDEN, DEPTH, OUTPUT = 512, 784, 1024, 3, 10


def train(torch):
    nn = torch.nn

    def run_pass(clock, outputs):
        torch.manual_seed(3)
        layers, width = [], INPUT
        for _ in range(DEPTH):
            layers += [nn.Linear(width, HIDDEN), nn.LayerNorm(HIDDEN), nn.GELU(), nn.Dropout(0.1)]
            width = HIDDEN
        model = nn.Sequential(*layers, nn.Linear(width, OUTPUT)).cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        x = torch.randn(BATCH, INPUT, device="cuda")
        target = torch.randint(OUTPUT, (BATCH,), device="cuda")
        passes.train(torch, clock, outputs, model, optimizer, [(x, target)] * STEPS)

    return run_pass


torch = passes.require_torch()
passes.run("torch_mlp", torch.cuda.synchronize, train(torch))
