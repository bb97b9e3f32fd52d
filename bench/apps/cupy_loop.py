# SPDX-License-Identifier: Apache-2.0
"""
cupy_loop - CuPy with its own memory pool off, so that every temporary is an allocation of the driver.

usage: cupy_loop.py loop      500 elementwise and sum steps on a 1000 x 1000 array
       cupy_loop.py script    rand, matmul, norm, sort and fft over 60 sizes
       cupy_loop.py --pool …  the same with CuPy's pool on, to compare
"""
import sys

import passes

STEPS = 500
SIZES = range(32, 32 + 60 * 16, 16)


def elementwise_loop(cupy):
    def run_pass(clock, outputs):
        cupy.random.seed(7)
        x = cupy.random.rand(1000, 1000)
        sums = []
        clock.start()
        for step in range(STEPS):
            y = x * 1.0001 + step
            sums.append(y.sum())
        clock.stop()
        outputs.add(y.get())
        for value in sums:
            outputs.add(value.get())

    return run_pass


def script(cupy):
    # As many plans as there are sizes, or cuFFT plans each size anew in each pass and little else is measured.
    cupy.fft.config.get_plan_cache().set_size(len(SIZES))

    def run_pass(clock, outputs):
        cupy.random.seed(11)
        for n in SIZES:
            clock.start()
            a = cupy.random.rand(n, n)
            product = a @ a
            norm = cupy.linalg.norm(product)
            ordered = cupy.sort(a, axis=None)
            spectrum = cupy.fft.fft(a)
            clock.stop()
            for array in (product, norm, ordered, spectrum):
                outputs.add(array.get())

    return run_pass


PROGRAMS = {"loop": elementwise_loop, "script": script}


def main(arguments):
    pool = "--pool" in arguments
    names = [name for name in arguments if name != "--pool"] or ["loop", "script"]
    if any(name not in PROGRAMS for name in names):
        sys.exit(__doc__.strip())
    try:
        import cupy
    except ImportError:
        passes.skip("no CuPy (cupy) for this python3")
    try:
        if cupy.cuda.runtime.getDeviceCount() == 0:
            passes.skip("CuPy finds no GPU")
    except cupy.cuda.runtime.CUDARuntimeError as error:
        passes.skip(f"CuPy finds no GPU ({error})")
    if not pool:
        cupy.cuda.set_allocator(None)
    for name in names:
        passes.run(f"cupy_{name}", cupy.cuda.Device().synchronize, PROGRAMS[name](cupy))


main(sys.argv[1:])
