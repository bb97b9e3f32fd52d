# SPDX-License-Identifier: Apache-2.0
"""
torch_loader - training fed by a DataLoader: two worker processes, pinned batches, asynchronous copies to the GPU. A
free on the legacy stream follows every such copy.
"""
import passes

STEPS, BATCH, SIDE, CLASSES, WORKERS = 64, 256, 32, 10, 2


def make_model(torch):
    nn = torch.nn
    layers, channels = [], 3
    for width in (64, 128, 256):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * (SIDE // 8) ** 2, CLASSES)).cuda()


def train(torch):
    data = torch.utils.data
    images = torch.randn(STEPS * BATCH, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    targets = torch.randint(CLASSES, (STEPS * BATCH,), generator=torch.Generator().manual_seed(2))
    loader = data.DataLoader(data.TensorDataset(images, targets), batch_size=BATCH, num_workers=WORKERS,
                             pin_memory=True, persistent_workers=True)

    def run_pass(clock, outputs):
        torch.manual_seed(4)
        model = make_model(torch)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        batches = ((x.cuda(non_blocking=True), y.cuda(non_blocking=True)) for x, y in loader)
        passes.train(torch, clock, outputs, model, optimizer, batches)

    return run_pass


torch = passes.require_torch()
passes.run("torch_loader", torch.cuda.synchronize, train(torch))
