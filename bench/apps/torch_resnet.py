# SPDX-License-Identifier: Apache-2.0
"""
torch_resnet - 8 training steps of ResNet-50 (torchvision's) on random images of 224 x 224, batch 16. Run with
PYTORCH_NO_CUDA_MEMORY_CACHING=1 every tensor is an allocation of the driver.
"""
import passes

STEPS, BATCH, CLASSES = 8, 16, 1000


def train(torch):
    try:
        import torchvision
    except ImportError:
        passes.skip("no torchvision for this python3")

    def run_pass(clock, outputs):
        torch.manual_seed(9)
        model = torchvision.models.resnet50(weights=None, num_classes=CLASSES).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        images = torch.randn(BATCH, 3, 224, 224, device="cuda")
        target = torch.randint(CLASSES, (BATCH,), device="cuda")
        passes.train(torch, clock, outputs, model, optimizer, [(images, target)] * STEPS)

    return run_pass


torch = passes.require_torch()
passes.run("torch_resnet", torch.cuda.synchronize, train(torch), passes=4)
