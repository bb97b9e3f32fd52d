# SPDX-License-Identifier: Apache-2.0
# ctypes_host - Python reaches the driver through ctypes: a library by name, everything loaded, an address as a plain number.
import ctypes
import gc
import os
import threading

driver = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
everything = ctypes.CDLL(None)
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
ROUNDS = 200


def churn(library):
    assert driver.cuCtxSetCurrent(context) == 0
    block = ctypes.c_uint64()
    for i in range(ROUNDS):
        assert library.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(512 * (i + 1))) == 0
        assert library.cuMemFree_v2(block) == 0
    gc.collect()


threads = [threading.Thread(target=churn, args=(library,)) for library in (driver, everything, driver)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert driver.cuCtxSetCurrent(context) == 0
block = ctypes.c_uint64()
assert driver.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(4096)) == 0
# a number that ctypes cuts to 32 bits
print("free", driver.cuMemFree_v2(block.value & 0x7FFFFFFF), driver.cuMemFree_v2(block), driver.cuMemFree_v2(block))
if hasattr(driver, "softcuda_calls"):
    driver.softcuda_calls.restype = ctypes.c_uint64
    calls = driver.softcuda_calls(b"cuMemAlloc_v2")
    assert calls >= 3 * ROUNDS if os.environ.get("HOST_EXPECT") == "native" else calls * 4 < 3 * ROUNDS, calls
print("churned")
